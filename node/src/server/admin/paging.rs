//! Pages of a list: page size, start, and the token of the next page.
//!
//! A token contains the key of the last row that was returned. So the cost of a page does not depend on its position,
//! or on rows that were added or removed. A token is JSON in hexadecimal, and only the list that created it accepts it.
//! If the keys are addresses, the JSON is encrypted ([`sealed_token`]).

use std::borrow::Cow;
use std::ops::Bound;

use data_encoding::HEXLOWER;
use prost::Message;
use reveille_ledger::Table;
use reveille_ledger::ids::Hash;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::listen::ANSWER_BYTES_MAX;
use super::{ApiError, ApiResult, sealed_token};

const PAGE_DEFAULT: usize = 100;
const PAGE_MAX: usize = 1_000;
/// Maximum bytes of a page with more than one row: half of those of an answer.
const PAGE_BYTES_MAX: usize = ANSWER_BYTES_MAX / 2;
/// Maximum number of rows that are read for one page. With a filter that few rows match, pages are short instead of
/// slow.
pub const EXAMINED_MAX: usize = 20_000;

/// The requested page of a list whose rows have keys of type `K`.
pub struct Paging<K> {
    list: Cow<'static, str>,
    /// Maximum number of rows to return.
    pub size: usize,
    /// Key of the last row of the previous page. `None` for the first page.
    pub after: Option<K>,
    /// Encrypts the tokens.
    secret: Option<[u8; 32]>,
}

impl<K: Serialize + DeserializeOwned + Clone> Paging<K> {
    /// Reads the request. `list` names the list: the token of another list is refused.
    pub fn new(list: impl Into<Cow<'static, str>>, page_size: i32, page_token: &str) -> ApiResult<Paging<K>> {
        Paging::of(list.into(), None, page_size, page_token)
    }

    /// As [`Paging::new`], for a list whose keys are addresses. `secret` is the same on all nodes.
    pub fn sealed(list: &'static str, secret: [u8; 32], page_size: i32, page_token: &str) -> ApiResult<Paging<K>> {
        Paging::of(list.into(), Some(secret), page_size, page_token)
    }

    fn of(list: Cow<'static, str>, secret: Option<[u8; 32]>, page_size: i32, page_token: &str) -> ApiResult<Paging<K>> {
        let size = match usize::try_from(page_size) {
            Err(_) => return Err(ApiError::of_field("page_size", "is below zero; give 1 to 1000, or none")),
            Ok(0) => PAGE_DEFAULT,
            Ok(size) => size.min(PAGE_MAX),
        };
        let after = match page_token {
            "" => None,
            token => Some(read(&list, secret.as_ref(), token).ok_or_else(|| {
                ApiError::of_field("page_token", "is not one that this list gave; ask without it for the first page")
            })?),
        };
        Ok(Paging { list, size, after, secret })
    }

    /// As [`Paging::new`], for a list whose keys mean something only with the request's other fields, `of`: the token of
    /// a request with other ones is refused. It contains only a hash of them.
    pub fn within(list: &str, of: &impl Serialize, page_size: i32, page_token: &str) -> ApiResult<Paging<K>> {
        let of = Hash::of(&serde_json::to_vec(of).unwrap_or_default()).to_string();
        Paging::new(format!("{list} {}", of.get(..16).unwrap_or_default()), page_size, page_token)
    }

    /// Returns the keys of this page and of those after it.
    pub fn rest(&self) -> (Bound<K>, Bound<K>) {
        (self.after.clone().map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)
    }

    /// Cuts rows that are one more than the page, if there is another page. Returns the token of that page.
    pub fn cut<R>(&self, rows: &mut Vec<R>, key: impl Fn(&R) -> &K) -> String {
        let more = rows.len() > self.size;
        rows.truncate(self.size);
        self.token(rows.last().filter(|_| more).map(key))
    }

    /// As [`Paging::cut`], for rows that may be too large for one answer together.
    pub fn cut_messages<R: Message>(&self, rows: &mut Vec<R>, key: impl Fn(&R) -> &K) -> String {
        let mut bytes = 0;
        let fits = |row: &&R| {
            bytes += row.encoded_len();
            bytes <= PAGE_BYTES_MAX
        };
        let fit = rows.iter().take(self.size).take_while(fits).count().max(1);
        let more = rows.len() > fit;
        rows.truncate(fit);
        self.token(rows.last().filter(|_| more).map(key))
    }

    /// Returns the token of the page after the row with this key. Returns an empty string for `None`.
    pub fn token(&self, last: Option<&K>) -> String {
        let Some(last) = last else { return String::new() };
        let json = serde_json::to_vec(&(&self.list, last)).unwrap_or_default();
        let bytes = self.secret.as_ref().map_or_else(|| json.clone(), |secret| sealed_token::seal(secret, &json));
        HEXLOWER.encode(&bytes)
    }
}

impl Paging<String> {
    /// Returns the rows of a tenant from this page on, with their names.
    pub fn of_tenant<'l, V>(
        &self,
        rows: &'l Table<(String, String), V>,
        tenant: &str,
    ) -> impl Iterator<Item = (&'l String, &'l V)> {
        let first = match &self.after {
            Some(after) => Bound::Excluded((tenant.to_owned(), after.clone())),
            None => Bound::Included((tenant.to_owned(), String::new())),
        };
        let rows = rows.range((first, Bound::Unbounded)).take_while(move |((of, _), _)| of == tenant);
        rows.map(|((_, name), row)| (name, row))
    }
}

fn read<K: DeserializeOwned>(list: &str, secret: Option<&[u8; 32]>, token: &str) -> Option<K> {
    let bytes = HEXLOWER.decode(token.as_bytes()).ok()?;
    let json = match secret {
        Some(secret) => sealed_token::open(secret, &bytes)?,
        None => bytes,
    };
    let (of, key): (String, K) = serde_json::from_slice(&json).ok()?;
    (of == list).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use reveille_ledger::ids::RunId;
    use reveille_proto::admin::v1::Template;

    #[test]
    fn token_reads_back_in_the_list_that_gave_it() {
        let run = RunId { index: 1042, place: 3 };
        let first = Paging::<RunId>::new("runs", 0, "").expect("a page");
        assert_eq!((first.size, first.after), (100, None));
        let token = first.token(Some(&run));
        assert_eq!(Paging::<RunId>::new("runs", 5_000, &token).expect("a page").after, Some(run));
        assert_eq!(first.token(None), "");
        for (list, token) in [("schedules", token.as_str()), ("runs", "00"), ("runs", "x"), ("runs", "5")] {
            assert!(Paging::<RunId>::new(list, 1, token).is_err(), "{list} {token}");
        }
        let within = |of: &str, token: &str| Paging::<u32>::within("recipients", &of, 0, token);
        let token = within("r1.0", "").expect("a page").token(Some(&7));
        assert_eq!(within("r1.0", &token).expect("a page").after, Some(7));
        assert!(within("r2.0", &token).is_err(), "it skips recipients of another run");
        assert!(Paging::<RunId>::new("runs", -1, "").is_err());
    }

    #[test]
    fn page_ends_before_its_messages_are_too_large_for_an_answer() {
        let large = |name: String| Template { tenant: "t".repeat(1024 * 1024), name, ..Template::default() };
        let of = |names: std::ops::Range<u32>| names.map(|name| large(name.to_string())).collect::<Vec<_>>();
        let page = Paging::<String>::new("templates", 5, "").expect("a page");
        let mut rows = of(0..6);
        let token = page.cut_messages(&mut rows, |row| &row.name);
        assert_eq!(rows.len(), 3);
        assert_eq!(Paging::<String>::new("templates", 0, &token).expect("a page").after.as_deref(), Some("2"));
        let mut rows = of(3..6);
        assert_eq!((page.cut_messages(&mut rows, |row| &row.name), rows.len()), (String::new(), 3));
        let mut rows = vec![Template { tenant: "t".repeat(5 * 1024 * 1024), ..large("huge".to_owned()) }];
        assert_eq!((page.cut_messages(&mut rows, |row| &row.name), rows.len()), (String::new(), 1));
        let mut rows: Vec<_> = (0..6).map(|name| Template { name: name.to_string(), ..Template::default() }).collect();
        assert!(!page.cut_messages(&mut rows, |row| &row.name).is_empty());
        assert_eq!(rows.len(), 5);
    }

    #[test]
    fn sealed_token_shows_no_address_and_reads_back_with_its_secret() {
        let page = |secret: u8, token: &str| Paging::<String>::sealed("opt-outs", [secret; 32], 0, token);
        let address = "ada@example.net".to_owned();
        let token = page(1, "").expect("a page").token(Some(&address));
        let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
        for part in ["ada", "example", "opt-outs"] {
            assert!(!token.contains(&hex(part)), "{part}: {token}");
        }
        assert_eq!(page(1, &token).expect("a page").after, Some(address.clone()));
        assert!(page(2, &token).is_err(), "another cluster");
        assert!(Paging::<String>::new("opt-outs", 0, &token).is_err());
        let clear = Paging::<String>::new("opt-outs", 0, "").expect("a page").token(Some(&address));
        assert!(page(1, &clear).is_err(), "it was not sealed");
    }

    mod fuzz {
        use proptest::prelude::*;
        use reveille_fuzz::{cases, damage, damaged_text};

        use super::*;

        proptest! {
            #![proptest_config(cases(1_000))]

            #[test]
            fn page_token_reads_back_and_other_text_is_refused_or_a_key(
                (index, place, key) in (any::<u64>(), any::<u32>(), "\\PC{0,20}"),
                damage in prop::collection::vec(damage(), 1..6),
            ) {
                let run = RunId { index, place };
                let first = Paging::<(RunId, String)>::new("runs", 0, "").expect("a page");
                let token = first.token(Some(&(run, key.clone())));
                let read = |token: &str| Paging::<(RunId, String)>::new("runs", 0, token).map(|page| page.after);
                prop_assert_eq!(read(&token).ok(), Some(Some((run, key))));
                let _ = read(&damaged_text(&token, &damage));
            }
        }
    }
}
