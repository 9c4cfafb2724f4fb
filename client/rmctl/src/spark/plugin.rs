//! Finds the jar of the Spark plugin on this host.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::arguments::usage;
use crate::exit::CommandResult;

/// Prefix of the jar's name: `headroom-spark-4.0_2.13.jar`.
const PREFIX: &str = "headroom-spark-";

/// The plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SparkPlugin {
    /// Spark loads it from its own `jars` directory.
    Installed,
    /// A jar that is named with `--jars`.
    Jar(PathBuf),
}

/// Finds the plugin: the given file, else the newest one that fits the Spark of this host, in its
/// `jars` directory or beside `rmctl`.
pub(crate) fn find(
    given: Option<&Path>,
    spark_home: Option<&Path>,
    program: Option<&Path>,
) -> CommandResult<SparkPlugin> {
    if let Some(file) = given {
        // The nodes have the jar.
        if file.to_string_lossy().starts_with("local:") {
            return Ok(SparkPlugin::Jar(file.to_owned()));
        }
        return if file.is_file() {
            let path = std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf());
            Ok(SparkPlugin::Jar(path))
        } else {
            Err(usage(format!("there is no plugin {}", file.display())).help(BUILD))
        };
    }
    let jars = spark_home.map(|home| home.join("jars"));
    let shared = program
        .and_then(Path::parent)
        .and_then(Path::parent)
        .map(|prefix| prefix.join("share/headroom"));
    let builds = jars.as_deref().and_then(fitting_build);
    let installed = jars.as_deref().map_or_else(Vec::new, plugins);
    let fits = |name: &str| builds.as_deref().is_none_or(|build| name == build);
    if installed.iter().any(|jar| fits(&jar.name)) {
        return Ok(SparkPlugin::Installed);
    }
    let mut found = shared.as_deref().map_or_else(Vec::new, plugins);
    found.retain(|jar| fits(&jar.name));
    found.sort_by_key(|jar| jar.changed);
    if builds.is_none() && found.windows(2).any(|two| two[0].name != two[1].name) {
        return Err(
            usage("the version of Spark is not known, because it is not on this host")
                .help("name the jar for it: --plugin FILE"),
        );
    }
    match found.pop() {
        Some(jar) => Ok(SparkPlugin::Jar(jar.path)),
        None => Err(usage(match builds {
            Some(build) => format!("there is no plugin {build}"),
            None => format!("there is no plugin {PREFIX}*.jar"),
        })
        .help(BUILD)),
    }
}

const BUILD: &str = "build it with client/spark/build --spark-home DIR, and name it with \
                     --plugin FILE or HEADROOM_SPARK_PLUGIN";

/// A jar of the plugin.
struct PluginJar {
    name: String,
    path: PathBuf,
    changed: Option<SystemTime>,
}

fn plugins(directory: &Path) -> Vec<PluginJar> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let jar = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let is_plugin = name.starts_with(PREFIX) && name.ends_with(".jar");
        is_plugin.then(|| PluginJar {
            path: entry.path(),
            changed: entry.metadata().and_then(|of| of.modified()).ok(),
            name,
        })
    };
    entries.flatten().filter_map(jar).collect()
}

/// The file name of the plugin for the Spark with these jars. `None` if there is no Spark.
fn fitting_build(jars: &Path) -> Option<String> {
    let entries = std::fs::read_dir(jars).ok()?;
    let names = entries
        .flatten()
        .filter_map(|e| e.file_name().into_string().ok());
    names.into_iter().find_map(|name| build_for(&name))
}

/// The file name of the plugin for `spark-core_2.13-4.1.4.jar`. Spark 4.0, 4.1 and 4.2 share one.
fn build_for(core: &str) -> Option<String> {
    let versions = core.strip_prefix("spark-core_")?.strip_suffix(".jar")?;
    let (scala, spark) = versions.split_once('-')?;
    let mut parts = spark.split('.');
    let build = match (parts.next()?, parts.next()?) {
        ("4", "0" | "1" | "2") => "4.0".to_owned(),
        (major, minor) => format!("{major}.{minor}"),
    };
    Some(format!("{PREFIX}{build}_{scala}.jar"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(path: &Path) {
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("creates");
        std::fs::write(path, "").expect("writes");
    }

    #[test]
    fn versions_of_spark_share_builds() {
        for (core, build) in [
            (
                "spark-core_2.12-3.5.9.jar",
                Some("headroom-spark-3.5_2.12.jar"),
            ),
            (
                "spark-core_2.13-4.1.4.jar",
                Some("headroom-spark-4.0_2.13.jar"),
            ),
            (
                "spark-core_2.13-4.3.0.jar",
                Some("headroom-spark-4.3_2.13.jar"),
            ),
            ("spark-sql_2.13-4.1.4.jar", None),
        ] {
            assert_eq!(build_for(core).as_deref(), build);
        }
    }

    #[test]
    fn the_plugin_of_the_installed_spark_is_found() {
        let dir = tempfile::tempdir().expect("a directory");
        let (home, program) = (dir.path().join("spark"), dir.path().join("bin/rmctl"));
        let find = || find(None, Some(&home), Some(&program));
        touch(&home.join("jars/spark-core_2.13-4.1.4.jar"));
        let missing = find().expect_err("no plugin").to_string();
        assert!(
            missing.contains("headroom-spark-4.0_2.13.jar")
                && missing.contains("client/spark/build"),
            "{missing}"
        );
        let share = dir.path().join("share/headroom");
        touch(&share.join("headroom-spark-3.5_2.12.jar"));
        assert!(find().is_err());
        let jar = share.join("headroom-spark-4.0_2.13.jar");
        touch(&jar);
        assert_eq!(find(), Ok(SparkPlugin::Jar(jar)));
        touch(&home.join("jars/headroom-spark-4.0_2.13.jar"));
        assert_eq!(find(), Ok(SparkPlugin::Installed));
    }

    #[test]
    fn without_spark_only_one_build_is_a_choice() {
        let dir = tempfile::tempdir().expect("a directory");
        let program = dir.path().join("bin/rmctl");
        let share = dir.path().join("share/headroom");
        touch(&share.join("headroom-spark-4.0_2.13.jar"));
        assert!(find(None, None, Some(&program)).is_ok());
        touch(&share.join("headroom-spark-3.5_2.12.jar"));
        let several = find(None, None, Some(&program)).expect_err("two builds");
        assert!(several.to_string().contains("--plugin"));
    }

    #[test]
    fn a_given_plugin_must_exist() {
        let dir = tempfile::tempdir().expect("a directory");
        let jar = dir.path().join("p.jar");
        assert!(find(Some(&jar), None, None).is_err());
        let of_nodes = Path::new("local:/opt/p.jar");
        assert_eq!(
            find(Some(of_nodes), None, None),
            Ok(SparkPlugin::Jar(of_nodes.to_owned()))
        );
        touch(&jar);
        assert_eq!(
            find(Some(&jar), None, None),
            Ok(SparkPlugin::Jar(jar.clone()))
        );
    }
}
