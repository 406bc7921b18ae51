//! Parser of the filter language. `||` binds loosest, then `&&`, then `!`.

use super::field::{Field, Sort};
use super::lex::{Token, lex};
use super::{Comparison, Expression, FilterError, Literal};

/// Parentheses and negations within each other. Evaluation is as deep as this.
const DEPTH_MAX: usize = 64;

pub(super) fn parse(text: &str) -> Result<Expression, FilterError> {
    let mut parser = Parser { tokens: lex(text)?, next: 0, end: text.len(), depth: 0 };
    let root = parser.any()?;
    match parser.tokens.get(parser.next) {
        None => Ok(root),
        Some((at, _)) => Err(FilterError { at: *at, what: "expected && or || before this".to_owned() }),
    }
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    next: usize,
    /// Length of the text, where errors about its end point to.
    end: usize,
    depth: usize,
}

impl Parser {
    fn any(&mut self) -> Result<Expression, FilterError> {
        let mut parts = vec![self.all()?];
        while self.takes(&Token::Or) {
            parts.push(self.all()?);
        }
        Ok(one_or(parts, Expression::Any))
    }

    fn all(&mut self) -> Result<Expression, FilterError> {
        let mut parts = vec![self.part()?];
        while self.takes(&Token::And) {
            parts.push(self.part()?);
        }
        Ok(one_or(parts, Expression::All))
    }

    fn part(&mut self) -> Result<Expression, FilterError> {
        let at = self.at();
        if self.depth >= DEPTH_MAX {
            return Err(FilterError { at, what: format!("more than {DEPTH_MAX} levels deep: simplify it") });
        }
        if self.takes(&Token::Not) {
            self.depth += 1;
            let part = self.part()?;
            self.depth -= 1;
            return Ok(Expression::Not(Box::new(part)));
        }
        if self.takes(&Token::Open) {
            self.depth += 1;
            let inner = self.any()?;
            self.depth -= 1;
            if !self.takes(&Token::Close) {
                return Err(FilterError { at: self.at(), what: "expected a closing parenthesis".to_owned() });
            }
            return Ok(inner);
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<Expression, FilterError> {
        let at = self.at();
        let Some(Token::Name(name)) = self.take() else {
            return Err(FilterError { at, what: "expected an attribute, ! or (".to_owned() });
        };
        let field = Field::named(&name).ok_or_else(|| FilterError {
            at,
            what: format!(
                "`{name}` is no attribute; there are {}, and those of a log by their own names",
                Field::names()
            ),
        })?;
        if field.sort() == Sort::Flag {
            return Ok(Expression::Is(field));
        }
        let at = self.at();
        let Some(Token::Compare(comparison)) = self.take() else {
            return Err(FilterError {
                at,
                what: format!("expected a comparison of {name}, such as == or >"),
            });
        };
        let at = self.at();
        let literal = match self.take() {
            Some(Token::Number(number)) if field.sort() != Sort::Text => Literal::Number(number),
            Some(Token::Text(text)) if field.sort() != Sort::Number => Literal::Text(text),
            _ => {
                let wanted = if field.sort() == Sort::Text { "a text in quotes" } else { "a number" };
                return Err(FilterError { at, what: format!("{name} is compared with {wanted}") });
            }
        };
        if comparison == Comparison::Contains && matches!(literal, Literal::Number(_)) {
            return Err(FilterError { at, what: "=~ looks for a text in quotes".to_owned() });
        }
        Ok(Expression::Compare(field, comparison, literal))
    }

    fn at(&self) -> usize {
        self.tokens.get(self.next).map_or(self.end, |(at, _)| *at)
    }

    fn take(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.next).map(|(_, token)| token.clone());
        self.next += 1;
        token
    }

    fn takes(&mut self, token: &Token) -> bool {
        let is_next = self.tokens.get(self.next).is_some_and(|(_, next)| next == token);
        self.next += usize::from(is_next);
        is_next
    }
}

fn one_or(mut parts: Vec<Expression>, many: fn(Vec<Expression>) -> Expression) -> Expression {
    if parts.len() == 1 { parts.remove(0) } else { many(parts) }
}
