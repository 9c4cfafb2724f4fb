//! The files of a Spark application: which are uploaded, under which names the driver finds them,
//! and what the arguments of spark-submit call them. Pure but for the function that reads a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use headroom_types::{FetchedFile, FetchedFileKind, Sha256};
use headroom_wire::v1::validation::{MAX_FETCHED_FILES, check_fetched};

use super::arguments::{NO_FILE, SparkArguments, usage};
use super::file_location::FileLocation;
use super::plugin::SparkPlugin;
use super::properties::{PropertiesFile, setting};
use crate::exit::CommandFailure;

/// An argument that names files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FileArgument {
    /// The application itself.
    Application,
    /// `--jars`, with the plugin.
    Jars,
    /// `--py-files`.
    PyFiles,
    /// `--files`.
    Files,
    /// `--archives`.
    Archives,
}

impl FileArgument {
    /// The arguments with a list.
    pub(crate) const LISTS: [FileArgument; 4] = [
        FileArgument::Jars,
        FileArgument::PyFiles,
        FileArgument::Files,
        FileArgument::Archives,
    ];

    /// Name of the option.
    pub(crate) fn name(self) -> &'static str {
        match self {
            FileArgument::Application => "the application",
            FileArgument::Jars => "--jars",
            FileArgument::PyFiles => "--py-files",
            FileArgument::Files => "--files",
            FileArgument::Archives => "--archives",
        }
    }

    /// Setting that has the list if the option is absent.
    fn setting(self) -> Option<&'static str> {
        match self {
            FileArgument::Application => None,
            FileArgument::Jars => Some("spark.jars"),
            FileArgument::PyFiles => Some("spark.submit.pyFiles"),
            FileArgument::Files => Some("spark.files"),
            FileArgument::Archives => Some("spark.archives"),
        }
    }
}

/// Lists all files that the arguments, the settings and the plugin name.
pub(crate) fn named_files(
    arguments: &SparkArguments,
    file: &PropertiesFile,
    plugin: &SparkPlugin,
    base: &Path,
) -> Vec<(FileArgument, FileLocation)> {
    let mut all = Vec::new();
    if arguments.application != NO_FILE {
        let application = FileLocation::of(&arguments.application, base);
        all.push((FileArgument::Application, application));
    }
    if let SparkPlugin::Jar(jar) = plugin {
        let jar = FileLocation::of(&jar.to_string_lossy(), base);
        all.push((FileArgument::Jars, jar));
    }
    for argument in FileArgument::LISTS {
        let of_setting = || setting(arguments, file, argument.setting()?);
        let list = arguments.option(argument.name()).or_else(of_setting);
        let locations = FileLocation::list(list.unwrap_or_default(), base);
        all.extend(locations.into_iter().map(|found| (argument, found)));
    }
    all
}

/// The files of an application.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StagedFiles {
    /// What the arguments of spark-submit name.
    words: BTreeMap<FileArgument, Vec<String>>,
    /// What the node fetches into the working directory, by name, with the path on this host.
    fetched: BTreeMap<String, (FetchedFile, PathBuf)>,
}

impl StagedFiles {
    /// Selects the names. `digest` reads a file of this host. `interpreters` are the paths of
    /// Python that the driver uses: an archive that contains one is unpacked for it.
    pub(crate) fn new(
        named: Vec<(FileArgument, FileLocation)>,
        interpreters: &[&str],
        mut digest: impl FnMut(FileArgument, &Path) -> Result<Sha256, CommandFailure>,
    ) -> Result<StagedFiles, CommandFailure> {
        let mut staged = StagedFiles::default();
        for (argument, location) in named {
            let word = match location {
                FileLocation::Elsewhere(address) => address,
                FileLocation::Host { path, alias } => {
                    let sum = digest(argument, &path)?;
                    staged.add(argument, &path, alias.as_deref(), sum, interpreters)?
                }
            };
            let words = staged.words.entry(argument).or_default();
            if !words.contains(&word) {
                words.push(word);
            }
        }
        if staged.fetched.len() > MAX_FETCHED_FILES {
            let many = staged.fetched.len();
            return Err(usage(format!(
                "the application has {many} files, and a container can have {MAX_FETCHED_FILES}"
            ))
            .help(
                "put the jars into one jar, or name files that the nodes have with local:/PATH",
            ));
        }
        Ok(staged)
    }

    /// Adds a file of this host. Returns its name for Spark.
    fn add(
        &mut self,
        argument: FileArgument,
        path: &Path,
        alias: Option<&str>,
        sum: Sha256,
        interpreters: &[&str],
    ) -> Result<String, CommandFailure> {
        let own = path.file_name().and_then(|name| name.to_str());
        let own = own.filter(|name| !name.contains(',')).ok_or_else(|| {
            let option = argument.name();
            usage(format!("{option}: {} has no usable name", path.display()))
                .help("rename it: the name needs letters and no comma")
        })?;
        let plain = |name: &str| FetchedFile::uploaded(name, sum, FetchedFileKind::File);
        match (argument, alias) {
            (_, None) => {
                self.fetch(argument, path, plain(own))?;
                Ok(format!("./{own}"))
            }
            (FileArgument::Files, Some(alias)) => {
                self.fetch(argument, path, plain(alias))?;
                Ok(format!("./{alias}"))
            }
            (FileArgument::Archives, Some(alias)) => {
                self.fetch(argument, path, plain(own))?;
                if interpreters.iter().any(|python| is_within(python, alias)) {
                    let unpacked = FetchedFile::uploaded(alias, sum, FetchedFileKind::Archive);
                    self.fetch(argument, path, unpacked)?;
                }
                Ok(format!("./{own}#{alias}"))
            }
            (
                FileArgument::Application | FileArgument::Jars | FileArgument::PyFiles,
                Some(alias),
            ) => {
                let option = argument.name();
                Err(usage(format!(
                    "{option}: {}#{alias}: only --files and --archives have names after #",
                    path.display()
                ))
                .help("leave out # and the name after it"))
            }
        }
    }

    fn fetch(
        &mut self,
        argument: FileArgument,
        path: &Path,
        file: FetchedFile,
    ) -> Result<(), CommandFailure> {
        let option = argument.name();
        check_fetched(&file).map_err(|(what, fix)| usage(format!("{option}: {what}")).help(fix))?;
        match self.fetched.get(&file.name) {
            Some((same, _)) if *same == file => Ok(()),
            Some((_, other)) => Err(usage(format!(
                "{option}: {} and {} would both be {:?} in the driver's directory",
                other.display(),
                path.display(),
                file.name
            ))
            .help("rename one of them; --files and --archives also take PATH#NAME")),
            None => {
                let name = file.name.clone();
                self.fetched.insert(name, (file, path.to_owned()));
                Ok(())
            }
        }
    }

    /// Name of the application. `None` for a class of Spark itself.
    pub(crate) fn application(&self) -> Option<&str> {
        let words = self.words.get(&FileArgument::Application)?;
        words.first().map(String::as_str)
    }

    /// Value of an option with a list. `None` without files.
    pub(crate) fn list(&self, argument: FileArgument) -> Option<String> {
        self.words.get(&argument).map(|words| words.join(","))
    }

    /// The files that the node fetches.
    pub(crate) fn fetched(&self) -> Vec<FetchedFile> {
        let files = self.fetched.values();
        files.map(|(file, _)| file.clone()).collect()
    }
}

/// Whether a program is in this directory of the working directory.
fn is_within(program: &str, directory: &str) -> bool {
    let program = program.strip_prefix("./").unwrap_or(program);
    let inside = program.strip_prefix(directory);
    inside.is_some_and(|inside| inside.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digest of a file is made of the number of letters of its path.
    fn staged(text: &str, interpreters: &[&str]) -> Result<StagedFiles, CommandFailure> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let arguments = SparkArguments::parse(&words).expect("parses");
        let file = PropertiesFile::parse("spark.jars /lib/s.jar\nspark.files /f.txt");
        let plugin = SparkPlugin::Jar("/opt/plugin.jar".into());
        let named = named_files(&arguments, &file, &plugin, Path::new("/srv/job"));
        StagedFiles::new(named, interpreters, |_, path| {
            let letters = u8::try_from(path.to_string_lossy().len()).expect("short");
            Ok(Sha256::new([letters; 32]))
        })
    }
    fn names(staged: &StagedFiles) -> Vec<String> {
        let files = staged.fetched();
        let name = |file: &FetchedFile| format!("{}:{}", file.name, file.kind.as_str());
        files.iter().map(name).collect()
    }

    #[test]
    fn files_of_this_host_have_their_own_names_on_the_node() {
        let found = staged("--py-files m.zip,s3a://b/n.zip local:/opt/app.py", &[]);
        let found = found.expect("fits");
        assert_eq!(found.application(), Some("local:/opt/app.py"));
        let jars = found.list(FileArgument::Jars);
        assert_eq!(jars.as_deref(), Some("./plugin.jar,./s.jar"));
        let modules = found.list(FileArgument::PyFiles);
        assert_eq!(modules.as_deref(), Some("./m.zip,s3a://b/n.zip"));
        assert_eq!(found.list(FileArgument::Files).as_deref(), Some("./f.txt"));
        assert_eq!(found.list(FileArgument::Archives), None);
        let expected = ["f.txt:file", "m.zip:file", "plugin.jar:file", "s.jar:file"];
        assert_eq!(names(&found), expected);
        let option = staged("--jars a.jar --files b.txt spark-internal", &[]).expect("fits");
        assert_eq!(option.application(), None);
        let jars = option.list(FileArgument::Jars);
        assert_eq!(
            jars.as_deref(),
            Some("./plugin.jar,./a.jar"),
            "overrides the setting"
        );
    }

    #[test]
    fn an_alias_is_the_name_of_a_file_and_the_directory_of_an_archive() {
        let text = "--files log.conf#l --archives env.zip#env app.py";
        let plain = staged(text, &["python3", "./environment/bin/python"]).expect("fits");
        assert_eq!(plain.list(FileArgument::Files).as_deref(), Some("./l"));
        let archives = plain.list(FileArgument::Archives);
        assert_eq!(archives.as_deref(), Some("./env.zip#env"));
        let expected = [
            "app.py:file",
            "env.zip:file",
            "l:file",
            "plugin.jar:file",
            "s.jar:file",
        ];
        assert_eq!(names(&plain), expected);
        for python in ["./env/bin/python", "env/bin/python"] {
            let unpacked = names(&staged(text, &[python]).expect("fits"));
            assert!(unpacked.contains(&"env:archive".to_owned()), "{unpacked:?}");
        }
        let wrong = staged("--jars a.jar#b app.jar", &[]).expect_err("an alias");
        assert!(
            wrong.to_string().contains("--jars: /srv/job/a.jar#b"),
            "{wrong}"
        );
        let wrong = staged("--files a#b/c app.jar", &[]).expect_err("a path");
        assert!(
            wrong.to_string().contains("not a plain file name"),
            "{wrong}"
        );
    }

    #[test]
    fn two_files_of_one_name_are_refused_unless_they_are_equal() {
        let wrong = staged("--jars x/a.jar,long/a.jar app.jar", &[]).expect_err("two");
        let text = wrong.to_string();
        assert!(
            text.contains("/srv/job/x/a.jar and /srv/job/long/a.jar would both be \"a.jar\""),
            "{text}"
        );
        let same = staged("--jars x/a.jar,y/a.jar app.jar", &[]).expect("equal contents");
        let jars = same.list(FileArgument::Jars);
        assert_eq!(jars.as_deref(), Some("./plugin.jar,./a.jar"));
        assert_eq!(
            names(&same),
            [
                "a.jar:file",
                "app.jar:file",
                "f.txt:file",
                "plugin.jar:file"
            ]
        );
    }

    #[test]
    fn a_container_has_a_limited_number_of_files() {
        let jars: Vec<String> = (0..64).map(|n| format!("{n}.jar")).collect();
        let wrong = staged(&format!("--jars {} app.jar", jars.join(",")), &[]);
        let text = wrong.expect_err("too many").to_string();
        assert!(
            text.contains("has 67 files") && text.contains("local:/PATH"),
            "{text}"
        );
    }
}
