//! Objects with one field, which surround most lists and values of this interface.

use std::collections::BTreeMap;

/// An object with one field: `{"name":value}`.
pub(crate) type Field<T> = BTreeMap<&'static str, T>;

/// Builds an object with one field.
pub(crate) fn field<T>(name: &'static str, value: T) -> Field<T> {
    BTreeMap::from([(name, value)])
}
