//! Parser of the filter language. `||` binds loosest, then `&&`, then `!`.

use super::field::{Field, ValueType};
use super::lex::{Token, lex};
use super::{Comparison, Expression, FilterError, Literal};

/// Parentheses and negations within each other. Evaluation is as deep as this.
const MAX_DEPTH: usize = 64;

pub(super) fn parse(text: &str) -> Result<Expression, FilterError> {
    let mut parser = Parser { tokens: lex(text)?, next: 0, end: text.len(), depth: 0 };
    let root = parser.parse_or()?;
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
    fn parse_or(&mut self) -> Result<Expression, FilterError> {
        let mut parts = vec![self.parse_and()?];
        while self.consume_if(&Token::Or) {
            parts.push(self.parse_and()?);
        }
        Ok(collapse_single(parts, Expression::Any))
    }

    fn parse_and(&mut self) -> Result<Expression, FilterError> {
        let mut parts = vec![self.parse_unary()?];
        while self.consume_if(&Token::And) {
            parts.push(self.parse_unary()?);
        }
        Ok(collapse_single(parts, Expression::All))
    }

    fn parse_unary(&mut self) -> Result<Expression, FilterError> {
        let at = self.position();
        if self.depth >= MAX_DEPTH {
            return Err(FilterError { at, what: format!("more than {MAX_DEPTH} levels deep: simplify it") });
        }
        if self.consume_if(&Token::Not) {
            self.depth += 1;
            let part = self.parse_unary()?;
            self.depth -= 1;
            return Ok(Expression::Not(Box::new(part)));
        }
        if self.consume_if(&Token::Open) {
            self.depth += 1;
            let inner = self.parse_or()?;
            self.depth -= 1;
            if !self.consume_if(&Token::Close) {
                return Err(FilterError {
                    at: self.position(),
                    what: "expected a closing parenthesis".to_owned(),
                });
            }
            return Ok(inner);
        }
        self.parse_comparison()
    }

    fn parse_comparison(&mut self) -> Result<Expression, FilterError> {
        let at = self.position();
        let Some(Token::Name(name)) = self.next_token() else {
            return Err(FilterError { at, what: "expected an attribute, ! or (".to_owned() });
        };
        let field = Field::from_name(&name).ok_or_else(|| FilterError {
            at,
            what: format!(
                "`{name}` is no attribute; there are {}, and those of a log by their own names",
                Field::names()
            ),
        })?;
        if field.value_type() == ValueType::Flag {
            return Ok(Expression::Is(field));
        }
        let at = self.position();
        let Some(Token::Compare(comparison)) = self.next_token() else {
            return Err(FilterError {
                at,
                what: format!("expected a comparison of {name}, such as == or >"),
            });
        };
        let at = self.position();
        let literal = match self.next_token() {
            Some(Token::Number(number)) if field.value_type() != ValueType::Text => Literal::Number(number),
            Some(Token::Text(text)) if field.value_type() != ValueType::Number => Literal::Text(text),
            _ => {
                let wanted =
                    if field.value_type() == ValueType::Text { "a text in quotes" } else { "a number" };
                return Err(FilterError { at, what: format!("{name} is compared with {wanted}") });
            }
        };
        if comparison == Comparison::Contains && matches!(literal, Literal::Number(_)) {
            return Err(FilterError { at, what: "=~ looks for a text in quotes".to_owned() });
        }
        Ok(Expression::Compare(field, comparison, literal))
    }

    fn position(&self) -> usize {
        self.tokens.get(self.next).map_or(self.end, |(at, _)| *at)
    }

    fn next_token(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.next).map(|(_, token)| token.clone());
        self.next += 1;
        token
    }

    fn consume_if(&mut self, token: &Token) -> bool {
        let is_next = self.tokens.get(self.next).is_some_and(|(_, next)| next == token);
        self.next += usize::from(is_next);
        is_next
    }
}

fn collapse_single(mut parts: Vec<Expression>, many: fn(Vec<Expression>) -> Expression) -> Expression {
    if parts.len() == 1 { parts.remove(0) } else { many(parts) }
}
