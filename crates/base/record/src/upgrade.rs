//! Conversion of plans of older run formats.
//!
//! Works on JSON, before it becomes a [`Plan`](crate::Plan). No other code knows older formats.

use serde_json::Value;

/// Brings a plan to the current format; one that is current, or newer, stays as it is, and so does what has not the shape
/// of a plan: whoever reads it says what is wrong.
pub fn plan(mut plan: Value) -> Value {
    let settle_s = plan["settle_s"].clone();
    let arms = plan.get_mut("arms").and_then(Value::as_array_mut);
    for arm in arms.into_iter().flatten().filter(|arm| arm.is_object()) {
        // Arms settled all alike once.
        if arm["settle_s"].is_null() {
            arm["settle_s"] = settle_s.clone();
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_no_plan_stays_what_it_is() {
        let no_arms = json!({"format": 2, "arms": ["none", null, 7]});
        for odd in [
            json!([]),
            json!("x"),
            json!(1),
            json!(null),
            json!({"arms": ["none"]}),
            json!({"arms": {}}),
            no_arms,
        ] {
            assert_eq!(plan(odd.clone()), odd);
        }
    }

    #[test]
    fn arms_of_an_older_plan_settle_as_the_plan_says() {
        let arms = [json!({"name": "a"}), json!({"name": "b", "settle_s": 3.0})];
        let plan = plan(json!({"format": 2, "settle_s": 0.5, "arms": arms}));
        assert_eq!((&plan["arms"][0]["settle_s"], &plan["arms"][1]["settle_s"]), (&json!(0.5), &json!(3.0)));
    }
}
