//! Attacks on the built-in runtime: one hostile pod, image, registry or neighbour of each class, beside a healthy pod.
//! During an attack every call about the healthy pod succeeds, and memory, descriptors and threads of the daemon stay
//! within [`stage::BOUNDS`]. `docs/THREATS.md` lists the classes.

mod images;
mod local_user;
mod neighbours;
mod pods;
mod stage;
