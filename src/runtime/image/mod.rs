//! Images: pulled from registries, unpacked into layers, listed, removed.
