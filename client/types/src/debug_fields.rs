//! `Debug` for types with secrets, or with parts that have no `Debug`.

/// Implements `Debug` for a type with only the named fields; the others are shown as `..`.
#[macro_export]
macro_rules! debug_fields {
    ($type:ident { $($field:ident),* }) => {
        impl ::std::fmt::Debug for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_struct(stringify!($type))
                    $(.field(stringify!($field), &self.$field))*
                    .finish_non_exhaustive()
            }
        }
    };
}
