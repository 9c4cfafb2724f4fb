//! Conversions between messages and the types of the core that they mirror.
//!
//! Both sides are listed field by field: the compiler reports a field that only one of them has.

/// Moves the fields of a value into a type with fields of the same names. `without` names the
/// fields that the other type does not have or that are converted; `with` adds the values of
/// those.
macro_rules! move_fields {
    (
        $value:expr, $from:path => $to:path, { $($field:ident),+ $(,)? }
        $(without { $($dropped:ident),+ })? $(with { $($added:ident: $with:expr),+ })?
    ) => {{
        let $from { $($field,)+ $($($dropped: _,)+)? } = $value;
        $to { $($field,)+ $($($added: $with,)+)? }
    }};
}

/// Converts variants to those of the same names and fields; the other arms follow.
macro_rules! match_variants {
    (
        $value:expr, $from:ident => $to:ident,
        { $($variant:ident $({ $($field:ident),+ })?),+ $(,)? }
        $(, $pattern:pat => $other:expr)* $(,)?
    ) => {
        match $value {
            $($from::$variant $({ $($field),+ })? => $to::$variant $({ $($field),+ })?,)+
            $($pattern => $other,)*
        }
    };
}

pub(crate) use {match_variants, move_fields};
