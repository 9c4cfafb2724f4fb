//! Closed enums whose variants are words in files, messages and on screens.

/// Declares an enum without data whose variants have a word each.
///
/// The enum has `ALL`, its variants in the order of declaration; `as_str` and `Display`, the word
/// of a variant; and `FromStr`, whose error is the wrong text, the literal after the name of the
/// enum, and the list of words. A variant after a semicolon stands for words of newer versions: it
/// is not in `ALL` and cannot be parsed.
#[macro_export]
macro_rules! word_enum {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident: $wrong:literal {
            $($(#[$attribute:meta])* $variant:ident = $word:literal),+ $(,)?
            $(; $(#[$newer_attribute:meta])* $newer:ident = $newer_word:literal $(,)?)?
        }
    ) => {
        $(#[$meta])*
        $vis enum $name {
            $($(#[$attribute])* $variant,)+
            $($(#[$newer_attribute])* $newer,)?
        }

        impl $name {
            /// All variants, in the order of help texts.
            $vis const ALL: [$name; [$($word),+].len()] = [$($name::$variant),+];

            /// The word in files, messages and on screens.
            $vis const fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)+
                    $($name::$newer => $newer_word,)?
                }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = ::std::string::String;
            fn from_str(text: &str) -> ::std::result::Result<Self, Self::Err> {
                let found = $name::ALL.into_iter().find(|one| one.as_str() == text);
                found.ok_or_else(|| $crate::word_enum::unknown_word(text, $wrong, &[$($word),+]))
            }
        }
    };
}

/// The error of a text that is none of `words`: `"x" is not a store; use sled or redb`.
pub fn unknown_word(text: &str, wrong: &str, words: &[&str]) -> String {
    match words {
        [first @ .., last] if !first.is_empty() => {
            format!("{text:?} {wrong} {} or {last}", first.join(", "))
        }
        _ => format!("{text:?} {wrong} {}", words.concat()),
    }
}
