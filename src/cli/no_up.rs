//! Replaces `up` in a build without the feature `apiserver`: the command says why it does not exist.

/// Not in this build: it has no embedded Kubernetes API.
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(super) struct Up {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _ignored: Vec<String>,
}

impl Up {
    pub(super) fn run(self) -> anyhow::Result<()> {
        anyhow::bail!(
            "this build has no embedded Kubernetes API, which `up` needs (feature `apiserver`)"
        )
    }
}
