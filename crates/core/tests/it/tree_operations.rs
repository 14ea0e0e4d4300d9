//! Random operations on random trees, of all algorithms, compared with a model.

use proptest::prelude::*;

use crate::support::{some_cases, tree};

proptest! {
    #![proptest_config(some_cases(32))]

    #[test]
    fn a_tree_sends_what_it_accepted_as_its_ceilings_allow((root, limits, operations) in tree::runs()) {
        tree::run(root, limits, &operations);
    }
}
