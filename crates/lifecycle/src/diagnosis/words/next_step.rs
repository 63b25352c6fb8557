//! Texts of next steps: one line, one step. Commands stand between backticks, which pages turn into code and terminals leave out.

use std::fmt::{self, Display, Formatter};

use super::request::size;
use crate::diagnosis::next_step::{NextStep, PodPath};

impl Display for PodPath {
    /// The pod as kubectl takes it.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "-n {} {}", self.namespace, self.name)
    }
}

impl Display for NextStep {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReadLogs { pod, container, previous } => {
                let previous = if *previous { "-p " } else { "" };
                write!(f, "`kubectl logs {previous}{pod} -c {container}`")
            }
            Self::DescribePod(pod) => write!(f, "`kubectl describe pod {pod}`"),
            Self::FindWait { pod, unit, uid } => {
                match pod {
                    Some(pod) => write!(f, "`kubectl describe pod {pod}`")?,
                    None => f.write_str("`kubectl get pods -A -o wide | grep ContainerCreating`")?,
                }
                write!(f, ", `journalctl -u {unit} | grep {uid}`")
            }
            Self::GetObject { kind, namespace, name } => {
                write!(f, "`kubectl get {kind} -n {namespace} {name}`: it must exist before the pod can start")
            }

            Self::ReadKubeletLog { unit } => write!(f, "`journalctl -u {unit} -n 100`"),
            Self::CheckKubelet { unit } | Self::CheckRuntime { unit } => write!(f, "`systemctl status {unit}`"),
            Self::ReadRuntimeLog { unit } => write!(f, "`journalctl -u {unit} -n 100`"),
            Self::ReadCriscopeLog { unit } => write!(f, "`journalctl -u {unit} -n 100`"),
            Self::ReadKernelLog { pattern } => write!(f, "`journalctl -k -g '{pattern}'` on this node"),
            Self::ReadSystemdLog => f.write_str("`journalctl -t systemd -n 50` on this node"),

            Self::RaiseMemory { container, limit: Some(limit) } => {
                write!(f, "raise limits.memory of {container} ({}) if it needs more", size(*limit))
            }
            Self::RaiseMemory { container, limit: None } => {
                write!(f, "raise limits.memory of {container} if it needs more")
            }
            Self::RaiseCpu { container, millis } => write!(f, "raise limits.cpu of {container} ({millis}m)"),
            Self::FindMemoryUser => {
                f.write_str("find what uses the memory of this node: `ps -eo rss,args --sort=-rss | head`")
            }
            Self::FindCpuUser => f.write_str("find what uses the CPU of this node: `top`"),
            Self::FindDiskUser => f.write_str("find what uses the disks of this node: `iotop -ao`"),
            Self::FreeDisk => {
                f.write_str("free space: `crictl rmi --prune` removes unused images, and `df -h` shows the full disk")
            }

            Self::RunProbe { path } => write!(f, "run the probe by hand: `criscope exec {path} -- PROBE`"),
            Self::RunPostStartHook { path } => {
                write!(f, "run the postStart hook by hand: `criscope exec {path} -- HOOK`")
            }
            Self::CheckHook { container, hook } => write!(f, "find out what the {hook} of {container} waits for"),
            Self::HandleSigterm { container } => {
                write!(f, "let {container} end at SIGTERM: it runs until its grace period is over")
            }

            Self::CheckCommand { container, image: Some(image) } => {
                write!(f, "check the command of {container} in the pod, or the image {image}")
            }
            Self::CheckCommand { container, image: None } => {
                write!(f, "check the command of {container} in the pod, or its image")
            }
            Self::MakeExecutable { container } => {
                write!(f, "make the command of {container} executable in its image: `chmod +x`")
            }
            Self::CheckArchitecture { container, image: Some(image) } => {
                write!(f, "check that {image} and the command of {container} are built for this node's architecture")
            }
            Self::CheckArchitecture { container, image: None } => {
                write!(f, "check that the command of {container} is built for this node's architecture")
            }
            Self::CheckUser { container, image: Some(image) } => {
                write!(f, "check runAsUser of {container}, or USER in {image}")
            }
            Self::CheckUser { container, image: None } => {
                write!(f, "check runAsUser of {container}, or USER in its image")
            }
            Self::RunAsOtherUser { container } => {
                write!(f, "set runAsUser of {container} to a number above 0, or USER in its image")
            }
            Self::CheckWorkingDir { container } => {
                write!(f, "check workingDir of {container}, or WORKDIR in its image")
            }
            Self::CheckHidingVolume { container, path } => {
                write!(f, "mount the volume of {container} elsewhere: at {path} it hides files of the image")
            }
            Self::CheckHoldingVolume { container, path } => {
                write!(f, "check that the volume of {container} at {path} has the program")
            }
            Self::SetVolumeMode { path } => {
                write!(f, "make the program executable: set defaultMode 0755 on the volume at {path}")
            }
            Self::AllowExec { path } => {
                write!(f, "remove noexec from bindMountOptions of the mount at {path}, or run the program from the image")
            }
            Self::CheckSecurityContext { container } => write!(f, "check securityContext of {container}"),
            Self::MountWritable { container } => {
                write!(f, "mount a writable volume where {container} writes, such as an emptyDir")
            }
            Self::CheckLimits { container } => {
                write!(f, "check the resource limits of {container}: this kernel does not accept one of them")
            }
            Self::CheckSysctls => f.write_str("check the sysctls of the pod: this kernel lacks one of them"),
            Self::CheckSelinux { container } => write!(f, "check seLinuxOptions of {container}"),
            Self::LoadAppArmorProfile => {
                f.write_str("load the AppArmor profile on this node: `aa-status` lists the profiles that it has")
            }
            Self::CheckMount { container } => {
                write!(f, "check the volume of {container} that the error names")
            }
            Self::CheckDevice => {
                f.write_str("check the device plugin: `ls /etc/cdi /var/run/cdi` lists the devices of this node")
            }

            Self::AddPullSecret { host } => {
                write!(f, "add an imagePullSecret for {host} to the pod or its service account")
            }
            Self::RaisePullLimit { host } => {
                write!(f, "add an imagePullSecret for {host}, which raises its limit, or pull through a mirror")
            }
            Self::ListTags { repository } => {
                write!(f, "check the image's name: `skopeo list-tags docker://{repository}`")
            }
            Self::InspectImage { image } => {
                write!(f, "check the image's digest: `skopeo inspect docker://{image}`")
            }
            Self::CheckImageAccess { image } => {
                write!(f, "check the name {image}, or add an imagePullSecret that may read it")
            }
            Self::CorrectImageName { image } => write!(f, "correct the image's name {image} in the pod"),
            Self::BuildForPlatform { image } => {
                write!(f, "build {image} for this node's architecture too, or use a nodeSelector")
            }
            Self::PushImageAgain { image } => write!(f, "build {image} and push it again"),
            Self::CopyImageElsewhere { image } => {
                write!(f, "try it from another machine: `skopeo copy docker://{image} dir:/tmp/image`")
            }
            Self::SignImage { image } => {
                write!(f, "sign {image} as the policy of this node demands, or use an image that is signed")
            }
            Self::ProvideImageKey { image } => write!(f, "give this node the key for {image}"),
            Self::RemoveBrokenImage { image } => {
                write!(f, "`crictl rmi {image}` on this node: the kubelet pulls it again")
            }
            Self::PullByHand { image } => write!(f, "`crictl pull {image}` on this node"),
            Self::PullInParallel => f.write_str("set serializeImagePulls: false in the kubelet's configuration"),
            Self::CheckPauseImage { runtime } => {
                write!(f, "check the pause image in the configuration of {runtime}")
            }
            Self::TryRegistry { url } => write!(f, "`curl -v {url}` on this node"),
            Self::ResolveHost { host } => write!(f, "`getent hosts {host}` on this node"),
            Self::CheckCertificate { url } => {
                write!(f, "`curl -v {url}` on this node shows the certificate: renew it, or install its CA here")
            }
            Self::AllowPlainHttp { host, runtime } => {
                write!(f, "serve {host} with TLS, or allow it without in the configuration of {runtime}")
            }
            Self::CheckProxy { unit } => {
                write!(f, "check HTTPS_PROXY: `systemctl show {unit} -p Environment -p EnvironmentFiles`")
            }

            Self::CheckPluginAgent { agent } => {
                write!(f, "check the plugin's pod on this node: `kubectl get pods -A -o wide | grep {agent}`")
            }
            Self::RestartPluginAgent { agent } => {
                write!(f, "restart the {agent} pod of this node: it writes the plugin's credentials")
            }
            Self::InstallPlugin { plugin } => {
                write!(f, "install the CNI plugin {plugin} on this node, usually in /opt/cni/bin")
            }
            Self::FreeAddresses { range: Some(range) } => {
                write!(f, "free addresses of {range}, or widen the range")
            }
            Self::FreeAddresses { range: None } => f.write_str("free addresses, or widen the range of this node"),
            Self::CheckNetworkConfig => {
                f.write_str("check the CNI configuration, usually /etc/cni/net.d, and the network's pod on this node")
            }
            Self::CheckInterface => {
                f.write_str("compare `ip link` on this node with the interface in the CNI configuration")
            }
            Self::CheckDhcp => f.write_str("check the DHCP server, and the dhcp daemon of the CNI plugins on this node"),
            Self::CheckApi { host } => write!(f, "`curl -k https://{host}/livez` on this node"),
            Self::FindHostPort => f.write_str("find what has the host port: `ss -ltnp` on this node"),

            Self::AddHandler { handler, runtime } => {
                write!(f, "add the handler {handler} to the configuration of {runtime}, or change runtimeClassName")
            }
            Self::CheckCgroupDriver { runtime } => {
                write!(f, "check that the kubelet and {runtime} use the same cgroup driver")
            }
            Self::InstallProgram => f.write_str("install the program that the error names on this node"),
            Self::CheckOciHook => {
                f.write_str("check the OCI hook that the error names; for GPUs it is the NVIDIA container toolkit")
            }
            Self::CheckPolicyFile => f.write_str("correct the file on this node that the error names"),
            Self::StartService => f.write_str("start the service on this node whose socket the error names"),
            Self::RemountFilesystem => {
                f.write_str("check the server of the file system that the error names, and mount it again")
            }
            Self::RaiseUnitLimit { unit } => {
                write!(f, "raise the limit of the runtime: `systemctl edit {unit}`, such as LimitNOFILE=")
            }
            Self::RaiseTasks { unit } => {
                write!(f, "find the limit of processes: `systemctl show {unit} -p TasksCurrent -p TasksMax`")
            }
            Self::RaiseInotify => f.write_str("raise fs.inotify.max_user_instances: `sysctl fs.inotify` shows it"),
            Self::RaiseKeys => f.write_str("raise kernel.keys.maxkeys: `sysctl kernel.keys` shows it"),
            Self::FindBlockedProcesses => {
                f.write_str("find blocked processes on this node: `ps -eo stat,pid,wchan:32,args | grep ^D`")
            }
            Self::ClearFaults => f.write_str("`criscope fault clear`"),
        }
    }
}
