//! A campaign against the built-in runtime: one hostile pod, image, registry or neighbour of each class, beside a healthy
//! pod. While the attack lasts, every call about the healthy pod is answered, and memory, descriptors and threads of the
//! daemon stay within [`stage::BOUNDS`]. `docs/THREATS.md` names the classes.

mod images;
mod neighbours;
mod pods;
mod stage;
