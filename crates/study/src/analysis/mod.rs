//! Published models of performance, as functions: what a paper's equations say, and where they stop
//! being valid.

pub mod obtcp;
