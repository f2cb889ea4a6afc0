//! A queue of table entries, threaded through the table itself: no allocation, each entry at most
//! once.

/// The end of a list.
const NONE: u32 = u32::MAX;

/// An entry's place in one [`List`].
#[derive(Debug)]
pub(super) struct Link {
    next: u32,
    listed: bool,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            next: NONE,
            listed: false,
        }
    }
}

/// First in, first out.
#[derive(Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
    length: usize,
}

impl List {
    pub(super) const fn new() -> Self {
        Self {
            head: NONE,
            tail: NONE,
            length: 0,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.length
    }

    /// Appends an entry, unless it is in the list already. `link` finds this list's link in an
    /// entry.
    pub(super) fn push<T>(&mut self, table: &mut [T], index: u32, link: fn(&mut T) -> &mut Link) {
        let entry = link(&mut table[index as usize]);
        if entry.listed {
            return;
        }
        *entry = Link {
            next: NONE,
            listed: true,
        };
        if self.length == 0 {
            self.head = index;
        } else {
            link(&mut table[self.tail as usize]).next = index;
        }
        self.tail = index;
        self.length += 1;
    }

    /// Takes the first entry out.
    pub(super) fn pop<T>(&mut self, table: &mut [T], link: fn(&mut T) -> &mut Link) -> Option<u32> {
        if self.length == 0 {
            return None;
        }
        let index = self.head;
        let entry = link(&mut table[index as usize]);
        self.head = entry.next;
        entry.listed = false;
        self.length -= 1;
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::{Link, List};

    #[test]
    fn keeps_order_and_takes_no_entry_twice() {
        let mut table = [(); 4].map(|()| Link::default());
        let mut list = List::new();
        for index in [2, 0, 2, 3] {
            list.push(&mut table, index, |link| link);
        }
        assert_eq!(list.len(), 3);
        assert_eq!(list.pop(&mut table, |link| link), Some(2));
        list.push(&mut table, 2, |link| link);
        let rest: [_; 4] = core::array::from_fn(|_| list.pop(&mut table, |link| link));
        assert_eq!(rest, [Some(0), Some(3), Some(2), None]);
    }
}
