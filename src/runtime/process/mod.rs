//! The processes of a pod, by way of its criscope-shim.
