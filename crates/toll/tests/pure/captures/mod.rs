//! Tests with synthetic captures: generated, converted, merged, damaged.

mod encoded;
mod events;
mod forms;
mod made;
mod merged;
mod own {
    toll_testkit::own!();
}
mod printed {
    toll_testkit::printed!();
}
mod refused;
mod text;
mod window;
