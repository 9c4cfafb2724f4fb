//! Size of a driver's container, computed as Spark computes it for YARN. Pure.

use headroom_types::{Bytes, Cpus};

use super::arguments::{SparkArguments, usage};
use super::properties::{PropertiesFile, setting};
use crate::exit::CommandResult;

/// Setting of the overhead as a share of the heap.
const FACTOR: &str = "spark.driver.memoryOverheadFactor";

/// Size of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DriverSize {
    /// Heap of its JVM.
    pub(crate) heap: Bytes,
    /// Memory of its container: heap and overhead.
    pub(crate) memory: Bytes,
    /// Processors of its container.
    pub(crate) cpus: Cpus,
}

impl DriverSize {
    /// Computes the size from `--driver-memory`, `--driver-cores`, and the `spark.driver.*`
    /// settings.
    pub(crate) fn of(
        arguments: &SparkArguments,
        file: &PropertiesFile,
    ) -> CommandResult<DriverSize> {
        let find = |key: &str| setting(arguments, file, key);
        let size = |key, text: Option<&str>, default: Bytes| match text {
            Some(text) => spark_size(text)
                .ok_or_else(|| usage(format!("{key} = {text}: write a size such as 512m or 2g"))),
            None => Ok(default),
        };
        let heap_key = "spark.driver.memory";
        let heap_text = arguments
            .option("--driver-memory")
            .or_else(|| find(heap_key));
        let heap = size(heap_key, heap_text, Bytes::from_gib(1))?;
        if heap.is_zero() {
            return Err(usage("the memory of the driver is 0").help("--driver-memory 1g"));
        }
        let key = "spark.driver.memoryOverhead";
        let least_key = "spark.driver.minMemoryOverhead";
        let least = size(least_key, find(least_key), Bytes::from_mib(384))?;
        let overhead = size(key, find(key), factor(find(FACTOR))?.of(heap).max(least))?;
        Ok(DriverSize {
            heap,
            memory: heap.saturating_add(overhead),
            cpus: cores(arguments, find("spark.driver.cores"))?,
        })
    }
}

fn cores(arguments: &SparkArguments, setting: Option<&str>) -> CommandResult<Cpus> {
    let text = arguments
        .option("--driver-cores")
        .or(setting)
        .unwrap_or("1");
    match text.trim().parse::<u32>() {
        Ok(cores) if cores >= 1 => Ok(Cpus::from_cores(cores)),
        Ok(_) | Err(_) => Err(usage(format!(
            "spark.driver.cores = {text}: write a whole number of at least 1"
        ))),
    }
}

/// A share of the heap, in thousandths.
struct OverheadFactor(u64);

impl OverheadFactor {
    fn of(&self, heap: Bytes) -> Bytes {
        Bytes::from_mib(heap.mul_ratio(self.0, 1000).whole_mib())
    }
}

fn factor(text: Option<&str>) -> CommandResult<OverheadFactor> {
    let Some(text) = text else {
        return Ok(OverheadFactor(100));
    };
    thousandths(text.trim())
        .map(OverheadFactor)
        .ok_or_else(|| usage(format!("{FACTOR} = {text}: write a number such as 0.1")))
}

/// A decimal number in thousandths; further digits are cut.
fn thousandths(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) || (whole.is_empty() && part.is_empty()) {
        return None;
    }
    let whole: u64 = format!("0{whole}").parse().ok()?;
    let part: u64 = format!("{part}000").get(..3)?.parse().ok()?;
    whole.checked_mul(1000)?.checked_add(part)
}

/// Parses a size of Spark, such as `512m`, `2g` or `1024`. A bare number counts MiB.
pub(crate) fn spark_size(text: &str) -> Option<Bytes> {
    let text = text.trim().to_ascii_lowercase();
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().ok()?;
    let shift = match unit {
        "b" => 0,
        "k" | "kb" => 10,
        "" | "m" | "mb" => 20,
        "g" | "gb" => 30,
        "t" | "tb" => 40,
        "p" | "pb" => 50,
        _ => return None,
    };
    number.checked_mul(1 << shift).map(Bytes::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(text: &str, file: &str) -> CommandResult<DriverSize> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let arguments = SparkArguments::parse(&words).expect("parses");
        DriverSize::of(&arguments, &PropertiesFile::parse(file))
    }
    fn mib(text: &str, file: &str) -> (u64, u64) {
        let size = size(text, file).expect("a size");
        (size.heap.whole_mib(), size.memory.whole_mib())
    }

    #[test]
    fn the_container_has_heap_and_overhead() {
        assert_eq!(mib("a.py", ""), (1024, 1408));
        assert_eq!(mib("--driver-memory 8g a.py", ""), (8192, 8192 + 819));
        let file = "spark.driver.memory 3g\nspark.driver.memoryOverhead 1g";
        assert_eq!(mib("a.py", file), (3072, 4096));
        let conf = "--conf spark.driver.memory=512 --conf spark.driver.memoryOverhead=100m a.py";
        assert_eq!(mib(conf, file), (512, 612));
        let factor = "--driver-memory 4g --conf spark.driver.memoryOverheadFactor=0.25 a.py";
        assert_eq!(mib(factor, ""), (4096, 5120));
    }

    #[test]
    fn the_driver_has_one_core_unless_more_are_given() {
        let cpus = |text| size(text, "spark.driver.cores 3").expect("a size").cpus;
        assert_eq!(cpus("a.py"), Cpus::from_cores(3));
        assert_eq!(cpus("--driver-cores 2 a.py"), Cpus::from_cores(2));
        assert_eq!(size("a.py", "").expect("a size").cpus, Cpus::from_cores(1));
    }

    #[test]
    fn wrong_sizes_name_their_setting() {
        for (text, named) in [
            ("--driver-memory 1.5g a.py", "spark.driver.memory = 1.5g"),
            ("--driver-memory 0 a.py", "is 0"),
            ("--driver-cores x a.py", "spark.driver.cores = x"),
            (
                "--conf spark.driver.memoryOverheadFactor=y a.py",
                "Factor = y",
            ),
        ] {
            let failure = size(text, "").expect_err(text);
            assert!(failure.to_string().contains(named), "{failure}");
        }
    }
}
