//! Lists of addresses of the resource managers of one cluster: `http://a:7070, http://b:7070`.

/// Prefix of the address of a Unix socket.
pub const UNIX_SOCKET_PREFIX: &str = "unix:";

/// The reason why a text is not a list of addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressListError {
    /// An entry is empty.
    #[error(
        "{list:?} has no address at position {position}; write one comma between two addresses"
    )]
    Empty {
        /// The list.
        list: String,
        /// Number of the entry, from 1.
        position: usize,
    },
    /// An address occurs twice.
    #[error("{address} is in the list twice; name each resource manager once")]
    Duplicate {
        /// The address.
        address: String,
    },
    /// Encrypted and unencrypted addresses are in one list.
    #[error(
        "{first} and {other} are in one list; write https:// for all resource managers, or http:// for all"
    )]
    MixedSchemes {
        /// The first address of the list.
        first: String,
        /// The first address with another scheme.
        other: String,
    },
    /// A Unix socket is in a list with other addresses.
    #[error(
        "{address} is in a list with other addresses; a Unix socket leads to one resource manager and stands alone"
    )]
    SocketInList {
        /// The address.
        address: String,
    },
}

/// Splits a list at its commas. The entries have neither spaces around them nor slashes at their
/// end; their form is not checked. A text without a comma is a list of one entry.
///
/// # Errors
/// An entry is empty or occurs twice, schemes are mixed, or a Unix socket does not stand alone.
pub fn split_address_list(text: &str) -> Result<Vec<&str>, AddressListError> {
    let entries: Vec<&str> = text
        .split(',')
        .map(|entry| entry.trim().trim_end_matches('/'))
        .collect();
    let [first, others @ ..] = entries.as_slice() else {
        return Ok(entries);
    };
    for (at, entry) in entries.iter().enumerate() {
        if entry.is_empty() {
            return Err(AddressListError::Empty {
                list: text.to_owned(),
                position: at + 1,
            });
        }
        if entries.iter().take(at).any(|earlier| earlier == entry) {
            let address = (*entry).to_owned();
            return Err(AddressListError::Duplicate { address });
        }
    }
    if others.is_empty() {
        return Ok(entries);
    }
    if let Some(socket) = entries.iter().find(|e| e.starts_with(UNIX_SOCKET_PREFIX)) {
        let address = (*socket).to_owned();
        return Err(AddressListError::SocketInList { address });
    }
    let scheme = |entry: &str| entry.split_once("://").map(|(scheme, _)| scheme.to_owned());
    match others.iter().find(|entry| scheme(entry) != scheme(first)) {
        Some(other) if scheme(other).is_some() && scheme(first).is_some() => {
            Err(AddressListError::MixedSchemes {
                first: (*first).to_owned(),
                other: (*other).to_owned(),
            })
        }
        // The check of each entry finds the one without a scheme.
        Some(_) | None => Ok(entries),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_split_at_its_commas() {
        let split = |text| split_address_list(text).expect("a list");
        assert_eq!(split("http://a:7070"), ["http://a:7070"]);
        assert_eq!(
            split(" http://a:7070/ ,http://b:7070//"),
            ["http://a:7070", "http://b:7070"]
        );
        assert_eq!(split("unix:/run/rm.sock"), ["unix:/run/rm.sock"]);
        assert_eq!(split("lab:7070,http://a:1"), ["lab:7070", "http://a:1"]);
    }

    #[test]
    fn a_mistake_is_named() {
        let table = [
            (
                "http://a:1,,http://b:1",
                "\"http://a:1,,http://b:1\" has no address at position 2; write one comma between two addresses",
            ),
            (
                "http://a:1, ",
                "\"http://a:1, \" has no address at position 2; write one comma between two addresses",
            ),
            (
                "",
                "\"\" has no address at position 1; write one comma between two addresses",
            ),
            (
                "http://a:1,http://a:1/",
                "http://a:1 is in the list twice; name each resource manager once",
            ),
            (
                "https://a:1,http://b:1",
                "https://a:1 and http://b:1 are in one list; write https:// for all resource managers, or http:// for all",
            ),
            (
                "http://a:1,unix:/run/s",
                "unix:/run/s is in a list with other addresses; a Unix socket leads to one resource manager and stands alone",
            ),
        ];
        for (list, wanted) in table {
            let error = split_address_list(list).expect_err(list);
            assert_eq!(error.to_string(), wanted);
        }
    }
}
