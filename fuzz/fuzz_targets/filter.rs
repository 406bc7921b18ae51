//! Fuzz target of the filter parser: no panic, and error positions within the text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use toll_wire::event::Event;
use toll_wire::filter::Filter;

fuzz_target!(|text: &str| {
    match Filter::parse(text) {
        Ok(filter) => {
            filter.matches(&Event::default());
            filter.matches(&Event { query_ns: Some(1), text: text.as_bytes(), ..Event::default() });
        }
        Err(error) => assert!(error.at <= text.len(), "{error}"),
    }
});
