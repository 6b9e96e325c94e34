//! Lists of short texts in a result.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// The longest list that is read. An empty text takes three bytes in the file and up to 72 in memory.
const ITEMS_MAX: usize = 1 << 14;

/// Reads a list of at most [`ITEMS_MAX`] items.
pub(crate) fn short_list<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    deserializer.deserialize_seq(ShortList(PhantomData))
}

struct ShortList<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ShortList<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = seq.next_element()? {
            if list.len() == ITEMS_MAX {
                return Err(A::Error::custom(format_args!(
                    "the list has more than {ITEMS_MAX} items"
                )));
            }
            list.push(item);
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Texts(#[serde(deserialize_with = "short_list")] Vec<String>);

    #[test]
    fn a_list_is_read_up_to_the_limit() {
        let list = |items: usize| serde_json::to_string(&vec![""; items]).unwrap();
        let Texts(read) = serde_json::from_str(&list(ITEMS_MAX)).unwrap();
        assert_eq!(read.len(), ITEMS_MAX);
        let error = serde_json::from_str::<Texts>(&list(ITEMS_MAX + 1)).err().unwrap();
        assert!(error.to_string().contains("more than 16384 items"), "{error}");
    }
}
