//! Tests of CEL rules.

use super::*;
use serde_json::json;

fn root(spec: Value) -> Value {
    json!({"type": "object", "properties": {"spec": spec}})
}

fn rules(spec: Value) -> CelRules {
    CelRules::compile(&root(spec)).unwrap_or_else(|e| panic!("{e:#?}"))
}

fn text(errors: Vec<FieldError>) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn run(spec: Value, value: Value, old: Option<Value>) -> Vec<String> {
    let old = old.map(|old| json!({ "spec": old }));
    text(rules(spec).validate(&json!({ "spec": value }), old.as_ref()))
}

fn refused(schema: Value, rule: Value) -> Vec<String> {
    let mut schema = schema;
    schema["x-kubernetes-validations"] = json!([rule]);
    let errors = CelRules::compile(&root(schema)).err().unwrap_or_default();
    errors
        .iter()
        .map(|e| {
            let message = e.to_string();
            let place =
                "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0]";
            message.replace(place, "@")
        })
        .collect()
}

fn object() -> Value {
    json!({"type": "object", "properties": {
        "x": {"type": "string"}, "s": {"type": "string"}, "n": {"type": "integer"},
        "d": {"type": "number"}, "t": {"type": "string", "format": "date-time"},
        "foo_bar": {"type": "string"}, "a-b": {"type": "string"}, "namespace": {"type": "string"},
        "port": {"x-kubernetes-int-or-string": true},
        "list": {"type": "array", "items": {"type": "object", "properties": {"y": {"type": "string"}}}},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "nested": {"type": "object", "properties": {"inner": {"type": "object", "properties": {
            "deep": {"type": "string"}}}}},
    }})
}

fn with(rule: Value) -> Value {
    let mut schema = object();
    schema["x-kubernetes-validations"] = json!([rule]);
    schema
}

#[test]
fn broken_rules_read_as_the_real_server_words_them() {
    for (rule, value, messages) in [
        (
            json!({"rule": "self.x == 'k'", "message": "must be k"}),
            json!({"x": "z"}),
            vec!["spec: Invalid value: must be k"],
        ),
        (
            json!({"rule": "self.x == 'k'"}),
            json!({"x": "z"}),
            vec!["spec: Invalid value: failed rule: self.x == 'k'"],
        ),
        (
            json!({"rule": "self.s.size() < 3", "fieldPath": ".s", "reason": "FieldValueForbidden",
                "message": "too big"}),
            json!({"s": "kkkk"}),
            vec!["spec.s: Forbidden: too big"],
        ),
        (
            json!({"rule": "has(self.x)", "fieldPath": ".x", "reason": "FieldValueRequired", "message": "give x"}),
            json!({}),
            vec!["spec.x: Required value: give x"],
        ),
        (
            json!({"rule": "self.x != self.s", "reason": "FieldValueDuplicate", "message": "m"}),
            json!({"x": "a", "s": "a"}),
            vec!["spec: Duplicate value"],
        ),
        (
            json!({"rule": "self.n < 5", "messageExpression": "'n is ' + string(self.n)", "message": "m"}),
            json!({"n": 7}),
            vec!["spec: Invalid value: n is 7"],
        ),
        (
            json!({"rule": "self.n < 5", "messageExpression": "self.x", "message": "fallback"}),
            json!({"n": 7}),
            vec!["spec: Invalid value: fallback"],
        ),
        (
            json!({"rule": "self.x == 'a'", "message": "m"}),
            json!({}),
            vec!["spec: Invalid value: \"object\": no such key: x evaluating rule: m"],
        ),
        (
            json!({"rule": "self.port > 5"}),
            json!({"port": "a"}),
            vec![
                "spec: Invalid value: \"object\": 'no such overload': call arguments did not match a \
                  supported operator, function or macro signature for rule: self.port > 5",
            ],
        ),
    ] {
        assert_eq!(run(with(rule.clone()), value, None), messages, "{rule}");
    }
    assert_eq!(
        run(
            json!({"type": "string", "x-kubernetes-validations": [{"rule": "self == 'k'", "message": "m"}]}),
            json!("kkkkk"),
            None
        ),
        ["spec: Invalid value: \"kkkkk\": m"]
    );
}

#[test]
fn values_have_the_types_of_their_schema() {
    for rule in [
        "self.d / 2.0 == 2.5",
        "self.t > timestamp('2020-01-01T00:00:00Z')",
        "self.foo_bar == 'u' && self.a__dash__b == 'd' && self.__namespace__ == 'n'",
        "self.list.all(i, i.y.startsWith('y'))",
        "self.list.exists_one(i, i.y == 'y1') && self.list.map(i, i.y) == ['y1', 'y2']",
        "'a.b' in self.map && self.map['a.b'] == 1",
        "self.port == 80",
        "quantity('1Gi').isGreaterThan(quantity('1Mi'))",
        "isCIDR('10.0.0.0/8') && cidr('10.0.0.0/8').containsIP('10.1.2.3')",
        "self.?x.orValue('none') == 'none'",
        "self.?foo_bar.orValue('none') == 'u'",
        "self.?a__dash__b.hasValue() && !self.?x.hasValue()",
        "self.map[?'nope'].orValue(3) == 3",
        "self.?map[?'a.b'].orValue(3) == 1",
        "self.?nested.?inner.?deep.orValue('d') == 'd'",
        "!has(self.x) || self.x == ''",
        "math.greatest(1, 2) == 2",
        "size(self.list) == 2 && self.list.filter(i, i.y == 'y1').size() == 1",
    ] {
        let value = json!({"d": 5, "t": "2024-01-01T00:00:00Z", "foo_bar": "u", "a-b": "d",
            "namespace": "n", "port": 80, "list": [{"y": "y1"}, {"y": "y2"}], "map": {"a.b": 1}});
        assert_eq!(run(with(json!({ "rule": rule })), value, None), [""; 0], "{rule}");
    }
}

#[test]
fn a_resource_shows_its_names_and_no_other_metadata() {
    let schema = json!({"type": "object", "properties": {},
        "x-kubernetes-validations": [{"rule": "self.metadata.name.startsWith('a') && self.kind == 'Foo'",
            "message": "names"}]});
    let compiled = CelRules::compile(&schema).unwrap();
    assert_eq!(
        text(compiled.validate(&json!({"kind": "Foo", "metadata": {"name": "abc"}}), None)),
        [""; 0]
    );
    assert_eq!(
        text(compiled.validate(&json!({"kind": "Foo", "metadata": {"name": "b"}}), None)),
        ["<nil>: Invalid value: names"]
    );
    let bad = json!({"type": "object",
        "x-kubernetes-validations": [{"rule": "has(self.metadata.labels)"}]});
    let error = CelRules::compile(&bad).err().unwrap();
    assert!(error[0].detail.ends_with("undefined field 'labels'"), "{error:?}");
}

#[test]
fn transition_rules_wait_for_an_old_value() {
    let schema = with(json!({"rule": "self.x == oldSelf.x", "message": "immutable"}));
    assert_eq!(run(schema.clone(), json!({"x": "a"}), None), [""; 0]);
    assert_eq!(run(schema.clone(), json!({"x": "a"}), Some(json!({"x": "a"}))), [""; 0]);
    assert_eq!(
        run(schema, json!({"x": "b"}), Some(json!({"x": "a"}))),
        ["spec: Invalid value: immutable"]
    );
    let optional =
        with(json!({"rule": "oldSelf.hasValue() || self.x == 'new'", "message": "start new",
        "optionalOldSelf": true}));
    assert_eq!(run(optional.clone(), json!({"x": "a"}), None), ["spec: Invalid value: start new"]);
    assert_eq!(run(optional.clone(), json!({"x": "new"}), None), [""; 0]);
    assert_eq!(run(optional, json!({"x": "b"}), Some(json!({"x": "a"}))), [""; 0]);
}

#[test]
fn list_items_meet_their_predecessors_by_key_and_not_by_place() {
    let schema = json!({"type": "array", "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string"}, "v": {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": "self.v == oldSelf.v", "message": "fixed"}]}});
    let old = json!([{"name": "a", "v": 1}, {"name": "b", "v": 2}]);
    let swapped = json!([{"name": "b", "v": 2}, {"name": "a", "v": 1}, {"name": "c", "v": 9}]);
    assert_eq!(run(schema.clone(), swapped, Some(old.clone())), [""; 0]);
    let changed = json!([{"name": "b", "v": 3}]);
    assert_eq!(run(schema, changed, Some(old)), ["spec[0]: Invalid value: fixed"]);
}

#[test]
fn a_broken_rule_is_let_be_where_nothing_changed() {
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "string", "x-kubernetes-validations": [{"rule": "self == 'ok'", "message": "a"}]},
        "b": {"type": "string", "x-kubernetes-validations": [{"rule": "self == 'ok'", "message": "b"}]}}});
    assert_eq!(
        run(schema, json!({"a": "bad", "b": "worse"}), Some(json!({"a": "bad", "b": "bad"}))),
        ["spec.b: Invalid value: \"worse\": b"]
    );
}

#[test]
fn nulls_are_nobodys_business_but_their_parents() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string", "nullable": true,
        "x-kubernetes-validations": [{"rule": "self == 'ok'"}]}}});
    assert_eq!(run(schema, json!({"a": null}), None), [""; 0]);
}

#[test]
fn expressions_that_cannot_work_are_refused_before_they_run() {
    for (rule, ending) in [
        (json!({"rule": "self.foo == 'a'"}), "compilation failed: ERROR: undefined field 'foo'"),
        (
            json!({"rule": "self.?nested.inner.hasValue()"}),
            "this server does not implement '.inner' on an optional value, write '.?inner'",
        ),
        (json!({"rule": "self.?foo.hasValue()"}), "undefined field 'foo'"),
        (json!({"rule": "has(self.foo)"}), "undefined field 'foo'"),
        (json!({"rule": "self.list.all(i, i.z == 'a')"}), "undefined field 'z'"),
        (json!({"rule": "bar(self.x)"}), "undeclared reference to 'bar' (in container '')"),
        (json!({"rule": "kind == 'a'"}), "undeclared reference to 'kind' (in container '')"),
        (json!({"rule": "self.x"}), "cel expression must evaluate to a bool"),
        (json!({"rule": "self.x.y == 'a'"}), "type 'string' does not support field selection"),
        (
            json!({"rule": "self.x == 5"}),
            "found no matching overload for '_==_' applied to '(string, int)'",
        ),
        (
            json!({"rule": "self.d == 5"}),
            "found no matching overload for '_==_' applied to '(double, int)'",
        ),
        (json!({"rule": "self.x && true"}), "expected type 'bool' but found 'string'"),
        (
            json!({"rule": "self.list.sortBy(i, i.y) == []"}),
            "undeclared reference to 'i' (in container '')",
        ),
        (
            json!({"rule": "cel.bind(s, self.x, s == '')"}),
            "undeclared reference to 'cel' (in container '')",
        ),
        (json!({"rule": "type(self.x) == string"}), "(in container '')"),
        (
            json!({"rule": "true", "messageExpression": "5"}),
            "messageExpression must evaluate to a string",
        ),
        (
            json!({"rule": "true", "fieldPath": ".nope"}),
            "@.fieldPath: Invalid value: \".nope\": must be a valid path",
        ),
        (
            json!({"rule": "true", "optionalOldSelf": true}),
            "may not be set if oldSelf is not used in rule",
        ),
    ] {
        let said = refused(object(), rule.clone());
        assert!(said.len() == 1 && said[0].ends_with(ending), "{rule}: {said:?}");
    }
    let syntax = refused(object(), json!({"rule": "self.x == "}));
    assert!(syntax[0].contains("compilation failed: ERROR: <input>:1:"), "{syntax:?}");
    let pattern = refused(object(), json!({"rule": "self.x.matches('(')"}));
    assert!(pattern[0].contains("invalid matches argument"), "{pattern:?}");
    assert!(
        refused(object(), json!({"rule": "self.n < 5 && 1 ", "message": "m"}))[0].starts_with(
            "@.rule: Invalid value: {\"Rule\":\"self.n \\u003c 5 \\u0026\\u0026 1 \",\"Message\":\"m\",\
             \"MessageExpression\":\"\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}: "
        )
    );
}

#[test]
fn old_values_of_loose_items_cannot_be_asked_for() {
    let schema = json!({"type": "array", "items": {"type": "string",
        "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}});
    let error = CelRules::compile(&root(schema)).err().unwrap();
    assert_eq!(
        error[0].to_string(),
        "spec.validation.openAPIV3Schema.properties[spec].items.x-kubernetes-validations[0].rule: Invalid \
         value: \"self == oldSelf\": oldSelf cannot be used on the uncorrelatable portion of the schema \
         within spec.validation.openAPIV3Schema.properties[spec]"
    );
}

#[test]
fn a_default_that_breaks_a_rule_is_refused() {
    let schema = json!({"type": "string", "default": "bad",
        "x-kubernetes-validations": [{"rule": "self == 'ok'", "message": "m"}]});
    let error = CelRules::compile(&root(schema)).err().unwrap();
    assert_eq!(
        error[0].to_string(),
        "spec.validation.openAPIV3Schema.properties[spec].default: Invalid value: \"bad\": m"
    );
}

#[test]
fn rules_can_be_shared_between_threads() {
    fn shared<T: Send + Sync + Clone>(_: &T) {}
    let rules = rules(with(json!({"rule": "self.x == 'a'"})));
    shared(&rules);
    let other = rules.clone();
    let handle =
        std::thread::spawn(move || other.validate(&json!({"spec": {"x": "b"}}), None).len());
    assert_eq!(handle.join().unwrap(), 1);
}

fn numbers(rule: &str) -> Value {
    let list = json!({"type": "array", "items": {"type": "integer"}});
    let mut schema =
        json!({"type": "object", "properties": {"list": list, "n": {"type": "integer"}}});
    schema["x-kubernetes-validations"] = json!([{"rule": rule, "message": "no"}]);
    schema
}

#[test]
fn loops_within_loops_are_stopped_when_they_cost_too_much() {
    let list: Vec<i64> = (0..100).collect();
    for rule in [
        "self.list.all(x, self.list.all(y, self.list.all(z, x + y + z >= 0)))",
        "self.list.exists(x, self.list.exists(y, self.list.exists(z, x + y + z < 0))) || true",
        "self.list.map(x, self.list.map(y, self.list.filter(z, z > 1))).size() > 0",
        "lists.range(1000000000000).size() > self.n",
        "lists.range(4000000000).size() > self.n",
    ] {
        let started = std::time::Instant::now();
        let said = run(numbers(rule), json!({"list": list, "n": 1}), None);
        assert_eq!(said.len(), 1, "{rule}: {said:?}");
        assert!(started.elapsed() < std::time::Duration::from_secs(20), "{rule}");
    }
    let rule = "self.list.all(x, self.list.all(y, self.list.all(z, x + y + z >= 0)))";
    assert_eq!(
        run(numbers(rule), json!({"list": list, "n": 1}), None),
        [
            "spec: Invalid value: \"object\": 'operation cancelled: actual cost limit exceeded': no further \
             validation rules will be run due to call cost exceeds limit for rule: no"
        ]
    );
}

#[test]
fn many_cheap_rules_may_cost_as_much_as_one_object_has() {
    let item = json!({"type": "integer", "x-kubernetes-validations": [
        {"rule": "[1, 2, 3, 4, 5, 6, 7, 8].exists(x, x == self)"}]});
    let schema = json!({"type": "array", "items": item});
    assert_eq!(run(schema.clone(), json!(vec![1; 1_000]), None), Vec::<String>::new());
    let said = run(schema, json!(vec![8; 100_000]), None);
    assert_eq!(said.len(), 1);
    assert!(said[0].contains("validation failed due to running out of cost budget"), "{said:?}");
}

#[test]
fn what_rules_usually_do_is_within_their_budget() {
    let pairs = "self.list.all(x, self.list.exists_one(y, x == y))";
    let list: Vec<i64> = (0..150).collect();
    assert_eq!(run(numbers(pairs), json!({"list": list, "n": 1}), None), Vec::<String>::new());
    let range = "lists.range(10).all(i, self.list[i] == i)";
    assert_eq!(run(numbers(range), json!({"list": list, "n": 1}), None), Vec::<String>::new());
}
