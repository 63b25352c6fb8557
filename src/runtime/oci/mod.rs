//! The OCI runtime: the specification of a container, and the program that runs it.
