//! The flag by which Services without a class are Bowline's: the same for all commands that plan, or that
//! show what was planned.

/// Whether Services without a class are ours.
#[derive(Debug, clap::Args)]
pub(super) struct ClassFlag {
    /// Whether Services of type LoadBalancer that have no loadBalancerClass are served, too [default: true in
    /// up, false in controller; other commands use the setting of the controllers]
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub(super) default_class: Option<bool>,
}
