//! Lists of a column, one for each row, end to end: a column of histograms has millions of numbers.

use std::iter::Take;
use std::vec::IntoIter;

#[derive(Debug, Clone, PartialEq)]
pub struct Lists<T> {
    values: Vec<T>,
    /// Of each list in the values.
    ends: Vec<usize>,
}

impl<T> Default for Lists<T> {
    fn default() -> Self {
        Self { values: Vec::new(), ends: Vec::new() }
    }
}

impl<T> Lists<T> {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Of all lists.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    pub fn lengths(&self) -> impl Iterator<Item = usize> {
        let mut begin = 0;
        self.ends.iter().map(move |end| end - std::mem::replace(&mut begin, *end))
    }

    pub fn push(&mut self, list: impl IntoIterator<Item = T>) {
        self.values.extend(list);
        self.ends.push(self.values.len());
    }

    /// Adds lists as Parquet has them: a level of repetition of 0 begins one, and a level of definition of 0 is no value.
    pub fn extend_levelled(
        &mut self,
        values: impl IntoIterator<Item = T>,
        defined: &[i16],
        repeated: &[i16],
    ) {
        let mut end = self.values.len();
        self.values.extend(values);
        for (at, (defined, repeated)) in defined.iter().zip(repeated).enumerate() {
            if *repeated == 0 && at > 0 {
                self.ends.push(end);
            }
            end += usize::from(*defined > 0);
        }
        if !repeated.is_empty() {
            self.ends.push(end);
        }
    }
}

impl<T, L: IntoIterator<Item = T>> FromIterator<L> for Lists<T> {
    fn from_iter<I: IntoIterator<Item = L>>(lists: I) -> Self {
        let mut all = Self::default();
        lists.into_iter().for_each(|list| all.push(list));
        all
    }
}

/// Lists taken one by one.
pub struct TakenLists<T> {
    values: IntoIter<T>,
    ends: IntoIter<usize>,
    begin: usize,
}

impl<T> From<Lists<T>> for TakenLists<T> {
    fn from(lists: Lists<T>) -> Self {
        Self { values: lists.values.into_iter(), ends: lists.ends.into_iter(), begin: 0 }
    }
}

impl<T> TakenLists<T> {
    /// The next one, all of which is to be taken.
    pub fn next_list(&mut self) -> Option<Take<&mut IntoIter<T>>> {
        let end = self.ends.next()?;
        let length = end - std::mem::replace(&mut self.begin, end);
        Some(self.values.by_ref().take(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_what_their_levels_say() {
        let mut lists = Lists::from_iter([vec![1, 2], vec![]]);
        lists.extend_levelled([3, 4, 5], &[1, 1, 0, 1], &[0, 1, 0, 0]);
        assert_eq!(lists, Lists::from_iter([vec![1, 2], vec![], vec![3, 4], vec![], vec![5]]));
        lists.extend_levelled([], &[], &[]);
        assert_eq!((lists.len(), lists.values()), (5, &[1, 2, 3, 4, 5][..]));
        assert_eq!(lists.lengths().collect::<Vec<_>>(), [2, 0, 2, 0, 1]);
        let mut taken = TakenLists::from(lists);
        let mut all: Vec<Vec<i32>> = Vec::new();
        while let Some(list) = taken.next_list() {
            all.push(list.collect());
        }
        assert_eq!(all, [vec![1, 2], vec![], vec![3, 4], vec![], vec![5]]);
    }
}
