//! Tests files and notifiers: what is written, which notifiers run, and which consumers a check
//! refuses.

use super::*;

/// The consumers that are left out, and the reasons.
fn told(done: &Done) -> Vec<(&str, Reason)> {
    done.refused.iter().map(|told| (&*told.consumer.name, told.problem.reason)).collect()
}

#[tokio::test]
async fn what_is_the_same_is_neither_written_nor_told() {
    let stage = Stage::new(LINES);
    let mut publisher = stage.publisher(None, &[stage.counter()]);
    for services in [&["a"][..], &["a"], &["a", "b"], &["a", "b"]] {
        publisher.write(&of(services), Instant::now()).await.unwrap();
        publisher.notify().await;
    }
    assert_eq!((stage.read("out"), stage.read("count")), ("a\nb\n".into(), "x\nx\n".into()));
    let mut again = stage.publisher(None, &[stage.counter()]);
    again.write(&of(&["a", "b"]), Instant::now()).await.unwrap();
    assert!(!again.owes() && again.notify().await.is_empty());
}

#[tokio::test]
async fn who_fails_is_owed_alone_and_also_after_a_restart() {
    let stage = Stage::new(LINES);
    let failing = format!("command:test -e {}", stage.path("ready").display());
    let notifiers = [stage.counter(), failing];
    let mut publisher = stage.publisher(None, &notifiers);
    publisher.write(&of(&["a"]), Instant::now()).await.unwrap();
    let told = publisher.notify().await;
    assert_eq!(told.iter().map(|(_, came)| came.is_ok()).collect::<Vec<_>>(), [true, false]);
    assert!(publisher.owes());
    assert_eq!(publisher.notify().await.len(), 1);
    // The process ends here. The next one must run all notifiers, since it cannot know which are
    // due.
    let mut next = stage.publisher(None, &notifiers);
    assert!(next.owes());
    std::fs::write(stage.path("ready"), "").unwrap();
    assert_eq!(next.notify().await.len(), 2);
    assert!(!next.owes() && !stage.publisher(None, &notifiers).owes());
}

#[tokio::test]
async fn what_a_check_refuses_is_found_left_out_and_told_until_it_changes() {
    let stage = Stage::new(LINES);
    let check = "if grep -n bad {}; then exit 1; fi";
    let mut publisher = stage.publisher(Some(check), &[]);
    let services = ["a", "bad1", "c", "d", "e", "bad2", "g"];
    let done = publisher.write(&of(&services), Instant::now()).await.unwrap();
    let told: Vec<_> = done.refused.iter().map(|t| (&*t.consumer.name, t.problem.reason)).collect();
    assert_eq!(told, [("bad1", Reason::RefusedByCheck), ("bad2", Reason::RefusedByCheck)]);
    assert_eq!(stage.read("out"), "a\nc\nd\ne\ng\n");
    let again = publisher.write(&of(&services), Instant::now()).await.unwrap();
    assert_eq!((again.changed.len(), again.refused), (0, done.refused));
    let mended = publisher.write(&of(&["a", "c"]), Instant::now()).await.unwrap();
    assert_eq!((mended.changed.len(), mended.refused.len()), (1, 0));
}

#[tokio::test]
async fn a_check_that_does_not_answer_changes_nothing_and_refuses_nobody() {
    let stage = Stage::new(LINES);
    stage.publisher(None, &[]).write(&of(&["a"]), Instant::now()).await.unwrap();
    for (check, why) in [
        ("exec sleep 100", "it took longer than 100ms and was killed"),
        ("exec /no/such/program {}", "exit status: 127"),
    ] {
        let mut publisher = stage.publisher(Some(check), &[]);
        publisher.limit = Duration::from_millis(100);
        let error =
            publisher.write(&of(&["a", "b"]), Instant::now()).await.unwrap_err().to_string();
        assert!(
            error.starts_with("asking the check of the configuration: ") && error.contains(why),
            "{error}"
        );
        assert_eq!(stage.read("out"), "a\n");
    }
}

#[tokio::test]
async fn a_search_that_takes_too_many_tries_goes_live_with_what_it_knows_and_goes_on() {
    let stage = Stage::new(LINES);
    let mut publisher = stage.publisher(Some("! grep -q bad {}"), &[]);
    publisher.most_tries = 6;
    let services = ["a", "bad1", "c", "d", "e", "bad2", "g", "h"];
    let now = Instant::now();
    let mut done = publisher.write(&of(&services), now).await.unwrap();
    assert!(stage.read("out").starts_with("a\n"), "{}", stage.read("out"));
    assert_eq!(done.again, Some(now));
    assert!(told(&done).contains(&("bad1", Reason::RefusedByCheck)), "{done:?}");
    for _ in 0..4 {
        if done.again == Some(now) {
            done = publisher.write(&of(&services), now).await.unwrap();
        }
    }
    let both = [("bad1", Reason::RefusedByCheck), ("bad2", Reason::RefusedByCheck)];
    assert_eq!((told(&done), stage.read("out").as_str()), (both.to_vec(), "a\nc\nd\ne\ng\nh\n"));
}

#[tokio::test]
async fn who_is_refused_comes_back_by_itself_and_costs_one_try_when_others_change() {
    let stage = Stage::new(LINES);
    std::fs::write(stage.path("words"), "bad\n").unwrap();
    let (words, tries) = (stage.path("words"), stage.path("tries"));
    let check = format!("echo >> {}; ! grep -q -f {} {{}}", tries.display(), words.display());
    let mut publisher = stage.publisher(Some(&check), &[]);
    let begin = Instant::now();
    let done = publisher.write(&of(&["a", "bad", "c", "d"]), begin).await.unwrap();
    assert_eq!(told(&done), [("bad", Reason::RefusedByCheck)]);
    let due = done.again.unwrap();
    assert_eq!(due, begin + Duration::from_secs(10));
    let count = || stage.read("tries").lines().count();
    let before = count();
    // Other consumers change: they go live without a new search.
    publisher.write(&of(&["a", "bad", "c", "e"]), begin).await.unwrap();
    assert_eq!((stage.read("out").as_str(), count() - before), ("a\nc\ne\n", 1));
    let before = count();
    let done = publisher.write(&of(&["a", "bad", "c", "e"]), due).await.unwrap();
    assert_eq!(
        (told(&done).len(), done.again, count() - before),
        (1, Some(due + Duration::from_secs(20)), 2)
    );
    std::fs::write(stage.path("words"), "worse\n").unwrap();
    let done = publisher.write(&of(&["a", "bad", "c", "e"]), done.again.unwrap()).await.unwrap();
    assert_eq!((done.changed.len(), told(&done), done.again), (1, vec![], None));
    assert_eq!(stage.read("out"), "a\nbad\nc\ne\n");
}

#[tokio::test]
async fn a_template_that_fails_on_one_is_filled_with_the_others() {
    let stage = Stage::new(
        "{{ range .Services }}{{ if eq .Name \"odd\" }}{{ .Odd }}{{ end }}{{ .Name }}\n{{ end }}",
    );
    let mut publisher = stage.publisher(None, &[]);
    let done = publisher.write(&of(&["a", "odd", "c"]), Instant::now()).await.unwrap();
    assert_eq!(
        (told(&done), stage.read("out").as_str()),
        (vec![("odd", Reason::TemplateFailed)], "a\nc\n")
    );
    let message = &done.refused[0].problem.message;
    assert!(message.contains("evaluating {{ .Odd }}"), "{message}");
}

#[tokio::test]
async fn what_is_said_of_others_is_not_told_on_an_object() {
    let stage = Stage::new(LINES);
    // The two are refused only together, with the texts of both.
    let check = "if grep -q one {} && grep -q two {}; then cat {}; exit 1; fi";
    let mut publisher = stage.publisher(Some(check), &[]);
    let done = publisher.write(&of(&["one", "two"]), Instant::now()).await.unwrap();
    let messages: Vec<_> =
        done.refused.iter().map(|told| told.problem.message.to_string()).collect();
    let generic = "the configuration with this object and others is refused, so the object is left out; the \
        agent's log has the output of the check";
    assert_eq!(messages, [generic]);
}

#[tokio::test]
async fn nobody_is_owed_where_there_is_nobody() {
    let stage = Stage::new(LINES);
    stage.publisher(None, &[]).write(&of(&["a"]), Instant::now()).await.unwrap();
    assert!(!stage.path(".out.unnotified").exists());
}

#[tokio::test]
async fn a_check_that_refuses_everything_leaves_what_is_there() {
    let stage = Stage::new(LINES);
    stage.publisher(None, &[]).write(&of(&["a"]), Instant::now()).await.unwrap();
    let mut publisher = stage.publisher(Some("echo never; exit 1"), &[]);
    let error = publisher.write(&of(&["a", "b"]), Instant::now()).await.unwrap_err().to_string();
    let why = "the check of the configuration: exit status: 1; it printed: never; the files in place stay";
    assert_eq!((error.as_str(), stage.read("out").as_str()), (why, "a\n"));
}

#[tokio::test]
async fn a_template_that_is_broken_later_leaves_what_is_there_until_it_is_mended() {
    let stage = Stage::new(LINES);
    let mut publisher = stage.publisher(None, &[]);
    publisher.write(&of(&["a"]), Instant::now()).await.unwrap();
    std::fs::write(stage.path("t.tmpl"), "{{ range .Services }}\n{{ .Nope }}{{ end }}").unwrap();
    publisher.reread().unwrap();
    let error = publisher.write(&of(&["b"]), Instant::now()).await.unwrap_err().to_string();
    assert!(error.contains("t.tmpl:2: evaluating {{ .Nope }}"), "{error}");
    std::fs::write(stage.path("t.tmpl"), "{{ if }}").unwrap();
    assert!(publisher.reread().is_err());
    assert_eq!(stage.read("out"), "a\n");
    std::fs::write(stage.path("t.tmpl"), LINES).unwrap();
    publisher.reread().unwrap();
    publisher.write(&of(&["b"]), Instant::now()).await.unwrap();
    assert_eq!(stage.read("out"), "b\n");
}
