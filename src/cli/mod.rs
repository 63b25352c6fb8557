//! One file per subcommand.

pub mod smoke;
