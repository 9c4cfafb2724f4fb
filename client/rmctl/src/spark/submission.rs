//! The submission of a Spark application in cluster mode. Pure.
//!
//! The driver is a managed master: a container whose command is spark-submit in client mode. The
//! plugin in it registers as the master of the application.

use std::collections::BTreeMap;
use std::path::Path;

use headroom_types::{Bytes, LaunchSpec, MasterGrowth, Name, QueuePath, Resource};
use headroom_wire::v1::acl::AppAccess;
use headroom_wire::v1::apps::{ApplicationMaster, SubmitApplicationRequest};

use super::arguments::{NO_FILE, SparkArguments, usage};
use super::driver_size::DriverSize;
use super::properties::{PropertiesFile, setting};
use super::staged_files::{FileArgument, StagedFiles};
use crate::exit::CommandResult;

/// Starts spark-submit with the addresses of the resource managers that the node uses.
///
/// A full heap ends the JVM with exit code 3. The option is not one of `spark.driver.*`, so that it
/// replaces none of the user.
const SCRIPT: &str = r#"if [ ! -x "$SPARK_HOME/bin/spark-submit" ]; then
    echo "error: node $HEADROOM_NODE has no Spark in $SPARK_HOME; install it there, or name its \
directory with rmctl spark submit --spark-home DIR" >&2
    exit 127
fi
case $HEADROOM_RM in
https://*) scheme=spark-headroom+https port=443 ;;
*) scheme=spark-headroom port=80 ;;
esac
hosts=
rest=$HEADROOM_RM,
while [ -n "$rest" ]; do
    host=${rest%%,*}
    rest=${rest#*,}
    host=${host#*://}
    case $host in
    *:*) ;;
    *) host=$host:$port ;;
    esac
    hosts=$hosts${hosts:+,}$host
done
if [ -n "${HEADROOM_ADVERTISE:-}" ]; then
    set -- --conf "spark.driver.host=$HEADROOM_ADVERTISE" \
        --conf "spark.driver.bindAddress=${HEADROOM_LISTEN%:*}" "$@"
fi
export SPARK_SUBMIT_OPTS="-XX:+ExitOnOutOfMemoryError${SPARK_SUBMIT_OPTS:+ $SPARK_SUBMIT_OPTS}"
exec "$SPARK_HOME/bin/spark-submit" --master "$scheme://$hosts" --deploy-mode client "$@"
"#;

/// Exit codes of a driver with a full heap: 3 of the JVM, 52 of Spark.
const HEAP_EXIT_CODES: [i32; 2] = [3, 52];
/// Time for a stopped driver to end its application. Milliseconds.
const STOP_GRACE_MS: u64 = 10_000;
/// Longest time until the driver creates its Spark context. Milliseconds.
const START_TIMEOUT_MS: u64 = 600_000;
/// Largest memory of a driver without a given one, as a multiple of its first memory.
const USUAL_GROWTH: u64 = 4;
/// Name of the properties file in the working directory of the driver.
const PROPERTIES: &str = "spark-submit.properties";
/// Settings that the command of the driver sets itself.
const OWN_SETTINGS: [&str; 3] = [
    "spark.master",
    "spark.submit.deployMode",
    "spark.driver.memory",
];

/// Everything that a submission is made of.
#[derive(Clone, Debug)]
pub(crate) struct SparkJob<'a> {
    /// Arguments of spark-submit.
    pub(crate) arguments: SparkArguments,
    /// Text of the properties file.
    pub(crate) properties: Option<String>,
    /// Directory of Spark on the nodes.
    pub(crate) spark_home: &'a Path,
    /// Its files, with the plugin.
    pub(crate) files: StagedFiles,
    /// Environment variables of the driver, such as `JAVA_HOME`.
    pub(crate) variables: BTreeMap<String, String>,
    /// Largest memory of the driver's container.
    pub(crate) max_memory: Option<Bytes>,
    /// Maximum number of runs of the driver.
    pub(crate) max_attempts: u32,
    /// Queue by an option of rmctl.
    pub(crate) queue: Option<QueuePath>,
    /// Priority within the queue.
    pub(crate) priority: i32,
}

impl SparkJob<'_> {
    /// The submission.
    pub(crate) fn request(
        &self,
        user: Option<String>,
        key: String,
    ) -> CommandResult<SubmitApplicationRequest> {
        let file = PropertiesFile::parse(self.properties.as_deref().unwrap_or_default());
        let size = DriverSize::of(&self.arguments, &file)?;
        let max_memory = self
            .max_memory
            .unwrap_or_else(|| size.memory.mul_ratio(USUAL_GROWTH, 1));
        if max_memory < size.memory {
            return Err(usage(format!(
                "--driver-max-memory {max_memory} is less than the memory of the driver's \
                 container, {}",
                size.memory
            ))
            .help("its memory is --driver-memory with the overhead"));
        }
        let launch = LaunchSpec {
            command: self.command(),
            env: self.environment(),
            files: self
                .properties
                .iter()
                .map(|text| (PROPERTIES.to_owned(), text.clone()))
                .collect(),
            fetch: self.files.fetched(),
            heap: Some(size.heap),
            heap_exit_codes: HEAP_EXIT_CODES.to_vec(),
            stop_grace_ms: Some(STOP_GRACE_MS),
            ..LaunchSpec::default()
        };
        Ok(SubmitApplicationRequest {
            name: self.name(&file)?,
            queue: self.queue(&file)?,
            priority: self.priority,
            user,
            lifetime_ms: None,
            master: ApplicationMaster::Managed {
                resource: Resource::new(size.memory, size.cpus),
                launch: Box::new(launch),
                max_attempts: self.max_attempts,
                growth: Some(MasterGrowth { max_memory }),
                start_timeout_ms: Some(START_TIMEOUT_MS),
                first_request: None,
            },
            idempotency_key: Some(key),
            access: AppAccess::default(),
        })
    }

    fn environment(&self) -> BTreeMap<String, String> {
        let own = [
            ("HEADROOM_SPARK_DRIVER", "1".to_owned()),
            ("SPARK_HOME", self.spark_home.display().to_string()),
        ];
        let own = own.map(|(name, value)| (name.to_owned(), value));
        self.variables.clone().into_iter().chain(own).collect()
    }

    /// The words of the driver's command. The node replaces `{heap}` by the present heap.
    fn command(&self) -> Vec<String> {
        let mut words = ["sh", "-c", SCRIPT, "spark-submit"]
            .map(str::to_owned)
            .to_vec();
        let mut add = |name: &str, value: &str| words.extend([name.to_owned(), value.to_owned()]);
        add("--driver-memory", "{heap}");
        self.arguments
            .passed_on()
            .for_each(|(name, value)| add(name, value));
        for argument in FileArgument::LISTS {
            if let Some(list) = self.files.list(argument) {
                add(argument.name(), &list);
            }
        }
        if self.properties.is_some() {
            add("--properties-file", PROPERTIES);
        }
        let settings = self.arguments.conf.iter();
        for (key, value) in settings.filter(|(key, _)| !OWN_SETTINGS.contains(&key.as_str())) {
            add("--conf", &format!("{key}={value}"));
        }
        if let Some(count) = self.arguments.option("--num-executors") {
            add("--conf", &format!("spark.executor.instances={count}"));
        }
        words.extend(self.arguments.switches.iter().cloned());
        words.push(self.files.application().unwrap_or(NO_FILE).to_owned());
        words.extend(self.arguments.application_arguments.iter().cloned());
        words
    }

    fn queue(&self, file: &PropertiesFile) -> CommandResult<Option<QueuePath>> {
        if self.queue.is_some() {
            return Ok(self.queue.clone());
        }
        let of_setting = setting(&self.arguments, file, "spark.headroom.queue");
        let text = self.arguments.option("--queue").or(of_setting);
        text.map(|queue| {
            queue
                .parse()
                .map_err(|e| usage(format!("--queue {queue}: {e}")))
        })
        .transpose()
    }

    /// Name of the application: the name for Spark, else its class, else its file.
    fn name(&self, file: &PropertiesFile) -> CommandResult<Name> {
        let given = self.arguments.option("--name");
        let class = || self.arguments.option("--class")?.rsplit('.').next();
        let stem = || Path::new(&self.arguments.application).file_stem()?.to_str();
        let text = given
            .or_else(|| setting(&self.arguments, file, "spark.app.name"))
            .or_else(class)
            .or_else(stem)
            .unwrap_or_default();
        let name = application_name(text);
        name.parse()
            .map_err(|e| usage(format!("--name {text}: {e}")))
    }
}

/// A name of an application, as the plugin makes it from a name for Spark.
fn application_name(text: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let plain: String = text
        .chars()
        .map(|c| if is_word(c) { c } else { '-' })
        .collect();
    let is_edge = |c: char| !c.is_ascii_alphanumeric();
    let cut: String = plain.trim_start_matches(is_edge).chars().take(48).collect();
    match cut.trim_end_matches(is_edge) {
        "" => "spark".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use headroom_types::{Cpus, Sha256};

    use super::*;
    use crate::spark::plugin::SparkPlugin;
    use crate::spark::staged_files::named_files;

    fn job(text: &str) -> SparkJob<'static> {
        let plugin = SparkPlugin::Jar("/opt/headroom-spark.jar".into());
        job_with(text, None, &plugin)
    }
    fn job_with(text: &str, properties: Option<&str>, plugin: &SparkPlugin) -> SparkJob<'static> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let arguments = SparkArguments::parse(&words).expect("parses");
        let file = PropertiesFile::parse(properties.unwrap_or_default());
        let named = named_files(&arguments, &file, plugin, Path::new("/work"));
        let files = StagedFiles::new(named, &[], |_, _| Ok(Sha256::new([1; 32])));
        SparkJob {
            arguments,
            properties: properties.map(str::to_owned),
            spark_home: Path::new("/opt/spark"),
            files: files.expect("fits"),
            variables: BTreeMap::from([("JAVA_HOME".to_owned(), "/opt/java".to_owned())]),
            max_memory: None,
            max_attempts: 2,
            queue: None,
            priority: 0,
        }
    }
    fn request(job: &SparkJob<'_>) -> SubmitApplicationRequest {
        job.request(Some("ana".into()), "k".into())
            .expect("a submission")
    }
    fn launch(request: SubmitApplicationRequest) -> (Resource, LaunchSpec, Option<Bytes>) {
        match request.master {
            ApplicationMaster::Managed {
                resource,
                launch,
                growth,
                ..
            } => (resource, *launch, growth.map(|growth| growth.max_memory)),
            ApplicationMaster::Unmanaged => panic!("the driver is managed"),
        }
    }

    #[test]
    fn the_driver_runs_spark_submit_in_client_mode() {
        let job = job(
            "--class org.example.SparkPi --driver-memory 2g --driver-cores 2 --num-executors 3 \
             --executor-memory 4g --queue root.etl --jars a.jar,hdfs:/b.jar --files log.conf#l \
             --conf spark.master=x --conf spark.a=b --deploy-mode cluster --verbose app.jar 10 -x",
        );
        let request = request(&job);
        assert_eq!(request.name.as_str(), "SparkPi");
        assert_eq!(request.queue, "root.etl".parse().ok());
        let (resource, launch, max_memory) = launch(request);
        let memory = Bytes::from_mib(2048 + 384);
        assert_eq!(resource, Resource::new(memory, Cpus::from_cores(2)));
        assert_eq!(max_memory, Some(memory.mul_ratio(4, 1)));
        assert_eq!(launch.heap, Some(Bytes::from_gib(2)));
        assert_eq!(launch.heap_exit_codes, [3, 52]);
        assert_eq!(launch.command[..2], ["sh", "-c"]);
        let expected = "spark-submit --driver-memory {heap} --class org.example.SparkPi \
             --executor-memory 4g --jars ./headroom-spark.jar,./a.jar,hdfs:/b.jar \
             --files ./l --conf spark.a=b --conf spark.executor.instances=3 \
             --verbose ./app.jar 10 -x";
        assert_eq!(launch.command[3..].join(" "), expected);
        let names: Vec<_> = launch.fetch.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["a.jar", "app.jar", "headroom-spark.jar", "l"]);
        assert!(launch.fetch.iter().all(|file| file.upload().is_some()));
        let variables: Vec<_> = launch.env.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let expected = [
            "HEADROOM_SPARK_DRIVER=1",
            "JAVA_HOME=/opt/java",
            "SPARK_HOME=/opt/spark",
        ];
        assert_eq!(variables, expected);
    }

    #[test]
    fn the_driver_gets_all_resource_managers_of_its_node() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().expect("a directory");
        let bin = dir.path().join("bin");
        std::fs::create_dir(&bin).expect("creates");
        let program = bin.join("spark-submit");
        std::fs::write(&program, "#!/bin/sh\necho \"$@\"\n").expect("writes");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("sets");
        for (addresses, master) in [
            ("http://rm:7070", "spark-headroom://rm:7070"),
            ("http://rm", "spark-headroom://rm:80"),
            (
                "https://rm1:7070,https://rm2,https://10.0.0.3:1",
                "spark-headroom+https://rm1:7070,rm2:443,10.0.0.3:1",
            ),
        ] {
            let mut command = std::process::Command::new("sh");
            command.args(["-c", SCRIPT, "spark-submit", "app.jar"]);
            command.env_clear().env("HEADROOM_RM", addresses);
            command
                .env("SPARK_HOME", dir.path())
                .env("PATH", "/usr/bin:/bin");
            let output = command.output().expect("runs");
            assert_eq!(
                String::from_utf8_lossy(&output.stdout),
                format!("--master {master} --deploy-mode client app.jar\n"),
            );
        }
    }

    #[test]
    fn the_properties_file_travels_and_sizes_the_driver() {
        let text = "spark.driver.memory 3g\nspark.jars /j.jar\nspark.app.name My app\n\
                    spark.headroom.queue root.q\n";
        let words = "--properties-file p.conf local:/opt/app.py";
        let job = job_with(words, Some(text), &SparkPlugin::Installed);
        let request = request(&job);
        assert_eq!(request.name.as_str(), "My-app");
        assert_eq!(request.queue, "root.q".parse().ok());
        let (_, launch, _) = launch(request);
        assert_eq!(launch.heap, Some(Bytes::from_gib(3)));
        assert_eq!(launch.files[PROPERTIES], text);
        assert_eq!(
            launch.command[4..].join(" "),
            "--driver-memory {heap} --jars ./j.jar --properties-file spark-submit.properties \
             local:/opt/app.py"
        );
    }

    #[test]
    fn the_maximum_memory_is_not_below_the_first_memory() {
        let mut job = job("app.py");
        job.max_memory = Some(Bytes::from_gib(1));
        let failure = job.request(None, "k".into()).expect_err("too small");
        assert!(failure.to_string().contains("--driver-max-memory 1 GiB"));
        job.max_memory = Some(Bytes::from_gib(2));
        assert!(job.request(None, "k".into()).is_ok());
    }

    #[test]
    fn names_are_made_of_letters() {
        for (text, name) in [
            ("My app: 1!", "My-app--1"),
            ("--", "spark"),
            ("", "spark"),
            ("päth", "p-th"),
        ] {
            assert_eq!(application_name(text), name);
        }
        assert_eq!(
            request(&job("spark-internal")).name.as_str(),
            "spark-internal"
        );
    }
}
