//! Random numbers of the CPU, bit for bit those of PyTorch 2.13, and the state of devices' generators ([`Philox`]).
//!
//! [`Mt19937`] is the bit source, [`Generator`] adds PyTorch's bookkeeping (seed, cached normal, state bytes),
//! and [`Distribution`] turns words into values, or skips just the words that the values would have taken.

mod distributions;
mod gamma;
mod generator;
mod jump;
mod kernels;
mod mt19937;
mod philox;
mod sampling;
mod shared;

pub use distributions::Distribution;
pub use gamma::{Precision, binomial, gamma};
pub use generator::{DEFAULT_SEED, Generator, STATE_SIZE, entropy};
pub use kernels::RandomElement;
pub use mt19937::Mt19937;
pub use philox::Philox;
pub use sampling::{
    advance_bernoulli_probs, advance_exponential_weights, advance_randperm, bernoulli_probs_f32,
    bernoulli_probs_f64, check_multinomial_weights, keys_of, largest_quotients,
    multinomial_with_replacement, multinomial_without_replacement, poisson, randperm, sums_of,
};
pub use shared::{SharedGenerator, default_generator, with_default_generator};
