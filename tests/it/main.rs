//! One integration test binary, so that it is linked once: the program from outside, and the rules of the house.

mod architecture;
mod supply_chain;
