//! Spark applications in cluster mode: arguments of spark-submit, size of the driver, the plugin,
//! and the submission.

pub(crate) mod arguments;
pub(crate) mod driver_size;
pub(crate) mod file_location;
pub(crate) mod master_url;
pub(crate) mod path_pattern;
pub(crate) mod plugin;
pub(crate) mod properties;
pub(crate) mod staged_files;
pub(crate) mod submission;
