//! The network of a pod, by the CNI specification 1.1.
