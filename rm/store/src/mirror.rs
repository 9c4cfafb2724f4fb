//! Conversions between records and the types of the core that they mirror.
//!
//! Both sides are listed field by field: the compiler reports a field that only one of them has.

/// Conversions between a record and a type of the core with the same fields. A field of another
/// type names the functions that convert it into the record and back. A record may have the key of
/// the object as an additional field.
macro_rules! mirror_struct {
    (
        $record:ident, $core:ident, $of:ident, $back:ident,
        { $($field:ident $(($into:expr, $from:expr))?),+ $(,)? }
    ) => {
        impl $record {
            /// Converts it from the core's type.
            pub fn $of(core: &$core) -> Self {
                let $core { $($field),+ } = core.clone();
                $record { $($field: $(($into))?($field)),+ }
            }
            /// Converts it to the core's type.
            pub fn $back(self) -> $core {
                let $record { $($field),+ } = self;
                $core { $($field: $(($from))?($field)),+ }
            }
        }
    };
    (
        $record:ident, $core:ident, $of:ident, $back:ident, $key:ident: $key_type:ty,
        { $($field:ident $(($into:expr, $from:expr))?),+ $(,)? }
    ) => {
        impl $record {
            /// Converts it from the core's types.
            pub fn $of($key: &$key_type, core: &$core) -> Self {
                let ($key, $core { $($field),+ }) = ($key.clone(), core.clone());
                $record { $key, $($field: $(($into))?($field)),+ }
            }
            /// Converts it to the core's types.
            pub fn $back(self) -> ($key_type, $core) {
                let $record { $key, $($field),+ } = self;
                ($key, $core { $($field: $(($from))?($field)),+ })
            }
        }
    };
}

/// Conversions between an enum of a record and one of the core with the same variants.
macro_rules! mirror_enum {
    ($record:ident, $core:ident, { $($variant:ident),+ $(,)? }) => {
        impl $record {
            /// Converts it from the core's type.
            fn of(core: $core) -> Self {
                match core { $($core::$variant => $record::$variant),+ }
            }
            /// Converts it to the core's type.
            fn saved(self) -> $core {
                match self { $($record::$variant => $core::$variant),+ }
            }
        }
    };
}
