//! Things by number, the lowest free number first.
//!
//! Which number a new one gets depends on which are in use and on nothing that was before: two engines that hold the same
//! go on alike, whatever brought them there.

use std::{cmp::Reverse, collections::BinaryHeap};

/// Values by number.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    entries: Vec<Option<T>>,
    /// Numbers below the end that are free.
    free: BinaryHeap<Reverse<u32>>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), free: BinaryHeap::new() }
    }
}

impl<T> Slots<T> {
    /// Those that are in use, each at its number.
    ///
    /// # Panics
    /// As [`Slots::insert`].
    pub(crate) fn new(entries: Vec<Option<T>>) -> Self {
        let number = |at: usize| u32::try_from(at).expect("fewer numbers than a u32 counts");
        let vacant = entries.iter().enumerate().filter(|(_, entry)| entry.is_none());
        let free = vacant.map(|(at, _)| Reverse(number(at))).collect();
        Self { entries, free }
    }

    /// Gives a value the lowest free number.
    ///
    /// # Panics
    /// Beyond four thousand million values, for which no machine has the memory.
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(Reverse(number)) = self.free.pop() {
            self.entries[number as usize] = Some(value);
            return number;
        }
        self.entries.push(Some(value));
        u32::try_from(self.entries.len() - 1).expect("fewer numbers than a u32 counts")
    }

    /// The value of that number.
    pub(crate) fn get(&self, number: usize) -> Option<&T> {
        self.entries.get(number)?.as_ref()
    }

    /// As [`Slots::get`], to be changed.
    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        self.entries.get_mut(number)?.as_mut()
    }

    /// Takes a value out; its number is free from then on.
    pub(crate) fn remove(&mut self, number: usize) -> Option<T> {
        let value = self.entries.get_mut(number)?.take()?;
        self.free.push(Reverse(u32::try_from(number).ok()?));
        Some(value)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// All of them with their numbers, which rise.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.entries.iter().enumerate().filter_map(|(number, entry)| Some((number, entry.as_ref()?)))
    }

    /// As [`Slots::iter`], to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut T)> {
        self.entries.iter_mut().enumerate().filter_map(|(number, entry)| Some((number, entry.as_mut()?)))
    }

    /// What stands at each number, up to the last that is in use.
    pub(crate) fn entries(&self) -> &[Option<T>] {
        let end = self.entries.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        &self.entries[..end]
    }

    /// Gives up room behind the last.
    pub(crate) fn shrink(&mut self) {
        let end = self.entries().len();
        self.entries.truncate(end);
        self.entries.shrink_to_fit();
        self.free.retain(|Reverse(number)| (*number as usize) < end);
        self.free.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(count: u32) -> Slots<u32> {
        let mut slots = Slots::default();
        (0..count).for_each(|number| assert_eq!(slots.insert(number), number));
        slots
    }

    #[test]
    fn the_lowest_free_number_is_given_out_whatever_was_freed_last() {
        let mut slots = filled(6);
        for number in [3, 1, 4] {
            assert_eq!(slots.remove(number), u32::try_from(number).ok());
        }
        assert_eq!((slots.remove(3), slots.remove(9)), (None, None));
        assert_eq!([slots.insert(0), slots.insert(0), slots.insert(0), slots.insert(0)], [1, 3, 4, 6]);
    }

    #[test]
    fn what_is_in_use_decides_alone() {
        let mut one = filled(6);
        [5, 0, 2].into_iter().for_each(|number| _ = one.remove(number));
        let mut other = Slots::new(vec![None, Some(1), None, Some(3), Some(4)]);
        assert_eq!(one.entries(), other.entries());
        let mut shrunk = filled(9);
        [8, 7, 2, 6, 0, 5].into_iter().for_each(|number| _ = shrunk.remove(number));
        shrunk.shrink();
        for want in [0, 2, 5, 6] {
            assert_eq!([one.insert(9), other.insert(9), shrunk.insert(9)], [want; 3]);
        }
        assert_eq!((one.len(), other.len(), shrunk.len()), (7, 7, 7));
    }

    #[test]
    fn all_are_visited_in_the_order_of_their_numbers() {
        let mut slots = filled(4);
        slots.remove(1);
        slots.iter_mut().for_each(|(_, value)| *value += 10);
        assert_eq!(
            slots.iter().map(|(number, value)| (number, *value)).collect::<Vec<_>>(),
            [(0, 10), (2, 12), (3, 13)]
        );
    }

    #[test]
    fn an_empty_one_shrinks_to_nothing() {
        let mut slots = filled(1000);
        (0..1000).for_each(|number| _ = slots.remove(number));
        slots.shrink();
        assert_eq!((slots.len(), slots.entries.capacity(), slots.free.len()), (0, 0, 0));
    }
}
