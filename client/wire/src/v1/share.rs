//! Shares in their text form: `"40%"`, `"80GiB"`, a number of processors.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use headroom_types::{Bytes, Cpus, Name};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// A percentage, in thousandths: `"40%"`, `"12.5%"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent(u32);

/// The error of a text that is not a percentage.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a percentage from 0% to 100%; write for example \"40%\" or \"12.5%\"")]
pub struct ParsePercentError(String);

impl Percent {
    /// A percentage of `n` thousandths; saturates at 100 %.
    pub fn from_thousandths(n: u32) -> Self {
        Percent(n.min(1000))
    }
    /// The value in thousandths.
    pub fn thousandths(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 10 {
            0 => write!(f, "{}%", self.0 / 10),
            tenth => write!(f, "{}.{tenth}%", self.0 / 10),
        }
    }
}

impl FromStr for Percent {
    type Err = ParsePercentError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParsePercentError(text.chars().take(40).collect());
        let number = text.trim().strip_suffix('%').ok_or_else(wrong)?.trim();
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(part) || part.len() > 1 {
            return Err(wrong());
        }
        let (whole, part): (u32, u32) = (
            whole.parse().map_err(|_| wrong())?,
            part.parse().map_err(|_| wrong())?,
        );
        let thousandths = whole
            .checked_mul(10)
            .and_then(|n| n.checked_add(part))
            .filter(|n| *n <= 1000);
        thousandths.map(Percent).ok_or_else(wrong)
    }
}

headroom_types::textual!(Percent);

/// An amount of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShareAmount<T> {
    /// A part of the parent queue's amount; for the root, of the cluster.
    Part(Percent),
    /// An absolute amount.
    Exactly(T),
}

/// A quantity that can be written instead of a percentage.
pub trait ShareQuantity: Sized + Copy + Serialize {
    /// Parses a JSON value that is not a percentage.
    fn read(value: &Value) -> Result<Self, String>;
}
impl ShareQuantity for Bytes {
    fn read(value: &Value) -> Result<Self, String> {
        Bytes::deserialize(value)
            .map_err(|e| format!("{e}; write for example \"40%\" or \"80GiB\""))
    }
}
impl ShareQuantity for Cpus {
    fn read(value: &Value) -> Result<Self, String> {
        Cpus::deserialize(value).map_err(|e| format!("{e}; write for example \"40%\" or 16"))
    }
}
impl ShareQuantity for u64 {
    fn read(value: &Value) -> Result<Self, String> {
        u64::deserialize(value).map_err(|e| format!("{e}; write for example \"40%\" or 2"))
    }
}

impl<T: ShareQuantity> ShareAmount<T> {
    /// Parses a percentage or a quantity.
    pub fn read(value: &Value) -> Result<Self, String> {
        match value.as_str() {
            Some(text) if text.trim_end().ends_with('%') => text
                .parse()
                .map(ShareAmount::Part)
                .map_err(|e| format!("{e}")),
            Some(_) | None => T::read(value).map(ShareAmount::Exactly),
        }
    }
}

impl<T: ShareQuantity> Serialize for ShareAmount<T> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            ShareAmount::Part(percent) => percent.serialize(s),
            ShareAmount::Exactly(quantity) => quantity.serialize(s),
        }
    }
}

/// A share of the cluster, per resource. Written as one percentage for all resources, `"40%"`, or
/// by name: `{"memory": "80GiB", "cpus": 16, "gpu": 2}`. An omitted resource has the percentage of
/// memory, or no bound if memory has no percentage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceShare {
    /// Share of memory.
    pub memory: Option<ShareAmount<Bytes>>,
    /// Share of processors.
    pub cpus: Option<ShareAmount<Cpus>>,
    /// Share of countable resources.
    pub extra: BTreeMap<Name, ShareAmount<u64>>,
}

impl ResourceShare {
    /// True if no resource is set.
    pub fn is_empty(&self) -> bool {
        *self == ResourceShare::default()
    }

    /// Parses one percentage or an object. Returns every error with its key.
    pub fn read(value: &Value) -> Result<Self, Vec<(String, String)>> {
        let one = |what: String| vec![(String::new(), what)];
        let Some(object) = value.as_object() else {
            let text = value.as_str().ok_or_else(|| {
                one("a share is a percentage such as \"40%\" or an object".to_owned())
            })?;
            let percent: Percent = text
                .parse()
                .map_err(|e: ParsePercentError| one(e.to_string()))?;
            return Ok(ResourceShare {
                memory: Some(ShareAmount::Part(percent)),
                ..ResourceShare::default()
            });
        };
        let (mut share, mut wrong) = (ResourceShare::default(), Vec::new());
        for (key, value) in object {
            let read = match key.as_str() {
                "memory" => ShareAmount::read(value).map(|a| share.memory = Some(a)),
                "cpus" => ShareAmount::read(value).map(|a| share.cpus = Some(a)),
                name => match name.parse::<Name>() {
                    Ok(name) => ShareAmount::read(value).map(|a| {
                        share.extra.insert(name, a);
                    }),
                    Err(e) => Err(e.to_string()),
                },
            };
            if let Err(what) = read {
                wrong.push((key.clone(), what));
            }
        }
        if wrong.is_empty() {
            Ok(share)
        } else {
            Err(wrong)
        }
    }
}

impl Serialize for ResourceShare {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if let (Some(ShareAmount::Part(percent)), None, true) =
            (self.memory, self.cpus, self.extra.is_empty())
        {
            return percent.serialize(s);
        }
        use serde::ser::SerializeMap as _;
        let mut map = s.serialize_map(None)?;
        if let Some(memory) = &self.memory {
            map.serialize_entry("memory", memory)?;
        }
        if let Some(cpus) = &self.cpus {
            map.serialize_entry("cpus", cpus)?;
        }
        for (name, amount) in &self.extra {
            map.serialize_entry(name, amount)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for ResourceShare {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        ResourceShare::read(&Value::deserialize(d)?).map_err(|wrong| {
            let problems: Vec<String> = wrong
                .into_iter()
                .map(|(k, w)| if k.is_empty() { w } else { format!("{k}: {w}") })
                .collect();
            D::Error::custom(problems.join("; "))
        })
    }
}

mod schema {
    //! API schema of shares.

    use std::borrow::Cow;

    use utoipa::openapi::RefOr;
    use utoipa::openapi::schema::{
        AdditionalProperties, ObjectBuilder, OneOfBuilder, Schema, SchemaType, Type,
    };
    use utoipa::{PartialSchema, ToSchema};

    use super::{Percent, ResourceShare};

    const PERCENT: &str = "^(100(\\.0)?|[0-9]{1,2}(\\.[0-9])?) *%$";

    impl PartialSchema for Percent {
        fn schema() -> RefOr<Schema> {
            let text = ObjectBuilder::new()
                .schema_type(Type::String)
                .pattern(Some(PERCENT));
            text.description(Some("A percentage, to one place."))
                .examples(["40%", "12.5%"])
                .build()
                .into()
        }
    }
    impl ToSchema for Percent {
        fn name() -> Cow<'static, str> {
            Cow::Borrowed("Percent")
        }
    }

    impl PartialSchema for ResourceShare {
        fn schema() -> RefOr<Schema> {
            let amount = || {
                ObjectBuilder::new()
                    .schema_type(SchemaType::from_iter([Type::String, Type::Number]))
            };
            let memory = amount()
                .description(Some(
                    "`\"40%\"`, a size such as `\"80GiB\"`, or a number of bytes.",
                ))
                .build();
            let cpus = amount()
                .description(Some("`\"40%\"`, or a number of cores."))
                .build();
            let extra = amount()
                .description(Some(
                    "Of a countable resource: `\"40%\"`, or so many pieces.",
                ))
                .build();
            let object = ObjectBuilder::new()
                .property("memory", memory)
                .property("cpus", cpus);
            let object = object.additional_properties(Some(AdditionalProperties::from(RefOr::T(
                Schema::Object(extra),
            ))));
            let what = "A share of the cluster: one percentage for all resources, or each resource by its name. A resource that \
                        is not named follows memory's percentage, or is unbounded where that has none.";
            let either = OneOfBuilder::new()
                .item(Percent::schema())
                .item(object.build())
                .description(Some(what))
                .build();
            RefOr::T(Schema::OneOf(either))
        }
    }
    impl ToSchema for ResourceShare {
        fn name() -> Cow<'static, str> {
            Cow::Borrowed("Share")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn percentages_have_one_spelling_and_a_maximum() {
        for (text, thousandths) in [("40%", 400), ("12.5%", 125), ("0%", 0), ("100%", 1000)] {
            let percent: Percent = text.parse().expect(text);
            assert_eq!(
                (percent.thousandths(), percent.to_string().as_str()),
                (thousandths, text)
            );
        }
        for text in ["", "%", "40", "101%", "12.55%", "-1%", ".5%", "5.%", "4 0%"] {
            assert!(text.parse::<Percent>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_share_is_a_percentage_or_an_object() {
        let short: ResourceShare = serde_json::from_value(json!("40%")).expect("reads");
        assert_eq!(short.memory, Some(ShareAmount::Part(Percent(400))));
        assert_eq!(serde_json::to_value(&short).expect("writes"), json!("40%"));
        let long = json!({"memory": "80GiB", "cpus": 16, "gpu": 2});
        let long: ResourceShare = serde_json::from_value(long).expect("reads");
        assert_eq!(long.memory, Some(ShareAmount::Exactly(Bytes::from_gib(80))));
        assert_eq!(
            long.extra.values().collect::<Vec<_>>(),
            [&ShareAmount::Exactly(2)]
        );
        let text = serde_json::to_value(&long).expect("writes");
        assert_eq!(text, json!({"memory": 80_u64 << 30, "cpus": 16, "gpu": 2}));
        assert_eq!(
            serde_json::from_value::<ResourceShare>(text).expect("reads"),
            long
        );
    }

    #[test]
    fn every_mistake_of_a_share_is_reported() {
        let wrong = ResourceShare::read(&json!({"memory": "many", "cpus": "two", "g/u": 1}))
            .expect_err("three");
        assert_eq!(
            wrong.iter().map(|(k, _)| k.as_str()).collect::<Vec<_>>(),
            ["cpus", "g/u", "memory"]
        );
    }
}
