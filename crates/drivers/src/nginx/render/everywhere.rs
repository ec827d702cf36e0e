//! Renders the settings that do not depend on the plan: how nginx runs, where it reports what it has loaded, and how it
//! treats all requests. It follows the built-in proxy. Pure; the renderer calls it.

use super::super::failing;
use super::super::text::{BadText, Word};
use super::{CONNECTIONS, Settings, Stream};
use std::fmt::Write as _;
use std::path::Path;

/// Matches path elements that members could resolve, to get around a rule; and `#`: no client sends it, and members may
/// stop reading there.
const CLIMBS: &str = r"~*#|^[^?]*([/\\;]|%(2f|5c|3b))(\.|%2e){1,2}($|[/\\;?]|%(2f|5c|3b))";
const HOST: &str = r"~*^([a-z0-9._:\[\]-]*) \1\.?(:[0-9]*)?$";
const NO_HOST: &str = r"~*^[a-z0-9._:\[\]-]* $";

const WEB_LOG: &str = r#"'{"time":"$time_iso8601","client":"$remote_addr","listener":"$server_addr:$server_port","tls":"$ssl_protocol","protocol":"$server_protocol","method":"$request_method","host":"$host","path":"$uri","status":$status,"bytes_in":$request_length,"bytes_out":$bytes_sent,"duration_s":$request_time,"pool":"$proxy_host","member":"$upstream_addr"}'"#;
const STREAM_LOG: &str = r#"'{"time":"$time_iso8601","client":"$remote_addr","listener":"$server_addr:$server_port","protocol":"$protocol","status":$status,"bytes_in":$bytes_received,"bytes_out":$bytes_sent,"duration_s":$session_time,"member":"$upstream_addr"}'"#;

/// The file where nginx says why it does not load its configuration.
pub(crate) const LOG: &str = "error.log";

/// Whether nginx could not connect to a member for a request or connection.
const UNREACHED: &str = "    map $upstream_connect_time $bowline_unreached {\n        default \"\";\n        ~- 1;\n    }\n";

/// The headers towards members. Those that only a proxy may set replace the client's.
const TOLD: [(&str, &str); 13] = [
    ("Host", "$http_host"),
    ("Connection", "$bowline_connection"),
    ("Upgrade", "$bowline_upgrade"),
    ("Forwarded", "\"\""),
    ("X-Forwarded-For", "$proxy_add_x_forwarded_for"),
    ("X-Forwarded-Host", "$http_host"),
    ("X-Forwarded-Port", "$server_port"),
    ("X-Forwarded-Prefix", "\"\""),
    ("X-Forwarded-Proto", "$scheme"),
    ("X-Forwarded-Scheme", "\"\""),
    ("X-Forwarded-Server", "\"\""),
    ("X-Forwarded-Ssl", "\"\""),
    ("X-Real-IP", "$remote_addr"),
];

/// The file up to its mark.
pub(super) fn before_mark(settings: &Settings, streams: bool) -> Result<String, BadText> {
    let mut text = String::from(
        "# Written by Bowline. What is changed here by hand is lost at the next change.\n\n",
    );
    if let (Stream::Module(module), true) = (&settings.stream, streams) {
        text.push_str(&format!("load_module {};\n", Word::path("", module)?));
    }
    if settings.root {
        text.push_str("user root root;\n");
    }
    let own = |name: &str| Word::path("", &settings.folder.join(name));
    text.push_str(&format!(
        "worker_processes auto;\n\
         worker_shutdown_timeout {}s;\n\
         worker_rlimit_nofile {};\n\
         pcre_jit on;\n\
         pid {};\n\
         error_log stderr warn;\n\
         error_log {} emerg;\n\n\
         events {{\n    worker_connections {CONNECTIONS};\n}}\n\n\
         http {{\n",
        settings.shutdown_seconds.max(1),
        settings.files,
        own("nginx.pid")?,
        own(LOG)?,
    ));
    for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        text.push_str(&format!("    {kind}_temp_path {};\n", own(&format!("tmp-{kind}"))?));
    }
    text.push_str(&format!(
        "\n    # What is loaded, and who says so.\n    \
         server {{\n        listen {};\n        access_log off;\n        \
         location / {{\n            return 200 \"",
        Word::path("unix:", &settings.status_socket)?
    ));
    Ok(text)
}

/// The file after its mark, up to the upstreams.
pub(super) fn after_mark(settings: &Settings) -> Result<String, BadText> {
    let mut text = String::from(" $pid\\n\";\n        }\n    }\n\n");
    for line in [
        "default_type text/plain",
        &logs(settings, WEB_LOG)?,
        "server_tokens off",
        "merge_slashes off",
        "absolute_redirect off",
        "server_names_hash_bucket_size 512",
        "server_names_hash_max_size 16384",
        "map_hash_bucket_size 512",
        "map_hash_max_size 16384",
        "variables_hash_max_size 8192",
        "proxy_headers_hash_max_size 2048",
        "proxy_headers_hash_bucket_size 128",
        "tcp_nodelay on",
        "client_header_timeout 15s",
        "client_body_timeout 60s",
        "send_timeout 60s",
        "keepalive_timeout 75s",
        "reset_timedout_connection on",
        "large_client_header_buffers 4 64k",
        "client_max_body_size 0",
        "limit_req_status 429",
        "limit_req_log_level info",
        "ssl_protocols TLSv1.2 TLSv1.3",
        "proxy_http_version 1.1",
        "proxy_buffering off",
        "proxy_buffer_size 16k",
        "proxy_buffers 4 16k",
        "grpc_buffer_size 16k",
        "proxy_request_buffering off",
        "proxy_connect_timeout 5s",
        "grpc_connect_timeout 5s",
        "proxy_next_upstream error timeout",
        "proxy_next_upstream_tries 3",
        "proxy_next_upstream_timeout 15s",
        "grpc_next_upstream error timeout",
        "grpc_next_upstream_tries 3",
        "grpc_next_upstream_timeout 15s",
        "proxy_socket_keepalive on",
        // A member's headers must not control nginx.
        "proxy_ignore_headers X-Accel-Redirect X-Accel-Expires X-Accel-Limit-Rate X-Accel-Buffering X-Accel-Charset",
        "grpc_ignore_headers X-Accel-Redirect X-Accel-Charset",
        "proxy_pass_header Date",
        "proxy_pass_header Server",
        "proxy_redirect off",
    ] {
        text.push_str(&format!("    {line};\n"));
    }
    for (header, value) in TOLD {
        text.push_str(&format!("    proxy_set_header {header} {value};\n"));
        // HTTP/2 has no such headers.
        if !matches!(header, "Connection" | "Upgrade") {
            text.push_str(&format!("    grpc_set_header {header} {value};\n"));
        }
    }
    let map = |source: &str, name: &str, entries: &[(&str, &str)]| {
        let entries: String =
            entries.iter().map(|(key, value)| format!("        {key} {value};\n")).collect();
        format!("    map {source} ${name} {{\n{entries}    }}\n")
    };
    let (climbs, host, no_host) =
        (Word::quoted(CLIMBS)?, Word::quoted(HOST)?, Word::quoted(NO_HOST)?);
    text.push_str("    geo $bowline_dollar {\n        default \"$\";\n    }\n");
    for part in [
        map("$request_uri", "bowline_climbs", &[("default", "\"\""), (climbs.as_str(), "1")]),
        map(
            "\"$host $http_host\"",
            "bowline_stray",
            &[("default", "1"), (host.as_str(), "\"\""), (no_host.as_str(), "\"\"")],
        ),
        map(
            "\"$bowline_climbs$bowline_stray\"",
            "bowline_bad",
            &[("default", "1"), ("\"\"", "\"\"")],
        ),
        map("$http_upgrade", "bowline_upgrade", &[("default", "\"\""), ("websocket", "websocket")]),
        map(
            "$bowline_upgrade",
            "bowline_connection",
            &[("default", "\"\""), ("websocket", "upgrade")],
        ),
        map(
            "$server_addr",
            "bowline_literal",
            &[("default", "$server_addr"), ("\"~:\"", "\"[$server_addr]\"")],
        ),
        map("$host", "bowline_host", &[("default", "$host"), ("\"\"", "$bowline_literal")]),
        map(
            "\"$scheme:$server_port\"",
            "bowline_port",
            &[("default", "\":$server_port\""), ("http:80", "\"\""), ("https:443", "\"\"")],
        ),
        map("$scheme", "bowline_secure", &[("default", "\"\""), ("https", "\"; Secure\"")]),
        UNREACHED.to_owned(),
    ] {
        text.push_str(&part);
    }
    Ok(text)
}

/// The beginning of the `stream` block.
pub(super) fn stream(settings: &Settings) -> Result<String, BadText> {
    let lines = [
        &*logs(settings, STREAM_LOG)?,
        "tcp_nodelay on",
        "proxy_connect_timeout 5s",
        "proxy_next_upstream_tries 3",
        "proxy_socket_keepalive on",
    ];
    let lines: String = lines.iter().map(|line| format!("    {line};\n")).collect();
    Ok(format!("\nstream {{\n{lines}{UNREACHED}"))
}

/// The logs of `http` or `stream`: a line for each request or connection where it was asked for, and a line for those that
/// failed to connect to a member, which the driver reads.
fn logs(settings: &Settings, format: &str) -> Result<String, BadText> {
    let socket = |path: &Path| Word::path("syslog:nohostname,server=unix:", path);
    let mut text = format!(
        "log_format bowline_unreached \"$upstream_addr|$upstream_connect_time\";\n    \
         access_log {} bowline_unreached if=$bowline_unreached",
        socket(&settings.folder.join(failing::SOCKET))?
    );
    if let Some(path) = &settings.log_socket {
        let _ = write!(
            text,
            ";\n    log_format bowline escape=json {format};\n    access_log {} bowline",
            socket(path)?
        );
    }
    Ok(text)
}
