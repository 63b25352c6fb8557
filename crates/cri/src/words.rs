//! The words of error texts that may be shown: those of container runtimes, network plugins, registries, gRPC and the
//! kernel. A word that names a user's object does not belong here; see [`super::redact`].

use std::collections::HashSet;
use std::sync::LazyLock;

/// Returns whether a word, in lower case or in its usual spelling, belongs to the vocabulary.
pub(super) fn is_known(word: &str) -> bool {
    KNOWN.contains(word) || AS_WRITTEN.contains(&word)
}

/// The same for a word in any letters, without an allocation.
pub(super) fn is_word(word: &[u8]) -> bool {
    // The longest has 23 letters.
    let mut lower = [0; 32];
    let Some(lower) = lower.get_mut(..word.len()) else {
        return false;
    };
    lower.copy_from_slice(word);
    lower.make_ascii_lowercase();
    std::str::from_utf8(lower).is_ok_and(|word| KNOWN.contains(word))
}

static KNOWN: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    let own = WORDS.split_ascii_whitespace();
    own.chain(WORDS_OF_SOURCES.split_ascii_whitespace())
        .collect()
});

/// Their capitals would split them into pieces too short to be judged.
const AS_WRITTEN: [&str; 24] = [
    "GiB",
    "KiB",
    "MBps",
    "MiB",
    "SELinux",
    "SetUp",
    "cAdvisor",
    "caData",
    "caPath",
    "caRootsData",
    "caRootsPath",
    "closID",
    "dstFd",
    "gRPC",
    "imageFs",
    "init-p",
    "keyData",
    "keyPath",
    "keyPaths",
    "runAsGroup",
    "runAsNonRoot",
    "runAsUser",
    "signedBy",
    "srcFd",
];

/// In alphabetical order.
const WORDS: &str = "
1k 1p a a128gcm a256gcm abandoned able abnormally abort aborted about above absent absolute accel accept accepted accepts access
accessible accessing account ack acknowledgement acquire acquired across action activate active actual add added adding
additional addr address addresses addrs adj adjusted adjustment adjustments after again against age agent ago algorithm alias
alive all alloc allocate allocated allocating allocation allow allowed allows almost alone alpha already also always amazonaws
ambiguous amd amd64 amount an and annotation annotations another answer answered answers antrea any api apparmor apparmorfs
append application applied applies apply applying arch architecture architectures archive archives are arg argument arguments
arm64 armv6 armv7 arp artifact as aside ask asked asking asks assembly assign assigned associated at atime atomic attach attached
attaching attachment attempt attempted attempting attempts attribute attributes audit auth authenticate authenticating authentication
authority authorization authorized auto autoconf available away aws azurecr back backend backlog backoff backward bad bandwidth
base base64 base64url bash basic be bearer because become been before begin beginning begun behavior behaviour behind being
belong belongs below beside best between beyond bin binary bind binding bit bits blkio blob blobs block blocked blocking blockio
blocks body bond boot both bound bounds bpf break bridge bring broke broken btrfs bucket buffer bug build buildah built bundle
bus busy busybox but by byte bytes bz2 bzip2 cache cached caches calico call called caller calling calls came can cancel
canceled cancelled cancelling cannot cap capabilities capability capacity card0 card1 case catch categories caught cause caused
cbm cbr0 cdi ceph cert certificate certificates cgroup cgroup2 cgroupfs cgroups cgroupv2 chain change changed changes changing
channel char character characters chdir check checked checking checkpoint checkpointed checkpoints checks checksum child
children chmod choose chown chroot cidr cilium cipher claims class classes clean cleaned cleaning cleanup clear cli client
clients clock cloexec clone cloned close closed closing cloud cluster cmd cni cni0 code codec codes cold collect collection
collision colon com command commands commit committed common communicate communication compatible complete completed completely
component compress compressed compression computed condition conditions conf config configs configuration configurations
configure configured configuring confines conflict conflicting conflicts conflist conmon connect connected connecting connection
connections conntrack consistent console constraint consume contain contained container containercannotrun containerd
containerio containers contains content contents context contexts continue control controller controllers convert converted
copied copy copying core cores correct corrupt corrupted cosign could couldn count counted counters cpu cpuacct cpus cpuset
crash crashed crashloopbackoff create createcontainererror created creates creating creation credential credentials cri crictl
crio criscope critical criu cross crun ctr cuda current currently custom cut cwd daemon damaged dangling dash data database
datagram date dbus deactivated dead deadline deadlines deadlock debug decide decides declared decode decoded decoder decoding
decompress decompressed decompressing decrease decreased decrypted deep deeper default defaults defined definition del delay
delegate delete deleted deleting deletion delivered denied deny dependencies dependency deprecated deregister desc describe
description descriptor descriptors deserialize desired destination destroy destroyed destroying detach detached detail details
detect detected determine dev device devices devmapper devpts dhcp diag diagnostic dial dialer dialing did didn died diff differ
different differs digest digits dir direct directories directory dirs dirsync dirty disable disabled disallowed disappeared
discard discarded disconnect disconnected disk dispatch distribution dnat dns do docker dockerd document does doesn domain don
done down download downloaded downloading dpu drain draining dri driver drop dropped dst due dummy dump dup dup2 duplicate
duplicated duration during dynamic eacces each eagain early ebtables ebusy echo econnrefused econnreset edge eexist effective
einval either element else elsewhere email emit empty emulate enable enabled encode encoded encoder encoding encountered
encrypted encryption end ended endpoint endpoints ends enforced engine enodev enoent enomem enospc enotdir enough ensure enter
entered entire entries entry entrypoint env environment eof eperm ephemeral epipe equal erofs err errdefs errimagepull errno
error errors escape esrch established etc etcdserver eth0 ethernet etimedout evaluate event events every everything evict
evicted eviction evicts exact exactly exceed exceeded exceeding exceeds except exception excessive exchange exclude exclusive
exec execsync executable execute executed executing execution exhausted exist existed existent existing exists exit exited
exiting exits expand expect expected expecting expire expired explicit export exported exposed expression extended extension
extensions external extra extract extracting extraction facts fail failed failing fails failure failures fallback false far fast
fatal fault fchmod fchmodat fchown fchownat fcntl fd fdinfo fds feature features fetch fetched fetcher fetching field fields
fifo file filename files filesystem filesystems filled filter filters fin final finalize find finding finish finished firewall
first fit fits flag flags flannel flow flush flushing folder folders follow following follows for forbidden force forced
forcibly forged forgotten fork form format formatted forward forwarded forwarding found fpga fractional frame free freeze
freezer freezing frequency from frozen fs fsconfig fsmount fsopen fstat fstatfs fstype fsverity fsync ftype fulcio full fully
function fuse fuseblk future garbage gateway gcr generate generated generating generation get getting ghcr gid gids give given
gnu go goaway goes going gone got gpg gpu gpus grace graceful gracefully graph greater group groups grpc guest gvisor gz gzip
had hairpin half halt handle handled handler handlers handles handling handshake hang happened hard has hash hashedrekord hasn
have haven head header headers health healthy heartbeat held helper here hex hidden hides hierarchy high higher highest hint hit
hmac hold holds holes home hook hooks host hostname hostnetwork hostport hosts hour how hpu http http2 https huge hugepage
hugepages hugetlb hung hypervisor i icmp id identical identifier identities identity idmap idmapped ids if ifname ignore ignored
illegal image imagepullbackoff images immutable implement implemented implicit import imported impossible improper in
inaccessible inactive incoming incompatible incomplete inconsistent incorrect increase increasing index indexes info information
ingest init initial initialization initialize initialized initializer initializing inject injected injection inode inodes
inotify input insecure inside inspect install installed instance instances instead instruction insufficient integer integrity
intel intended interface interfaces interior intermediate intermediates internal interrupt interrupted interrupting into
introspect introspection intvl invalid invoke invoked io ioctl ioprio ip ip6tables ipam ipc ips iptables ipv4 ipv6 ipvlan is
iscsi isn isolated isolation issue issuer issuers istio it item items its itself ivshmem job jobs join joined joining journal
json just jwe k8s kata keep keepalive keeps kept kernel key keyring keys kill killed killing kind kindnet know known knows kube
kubelet kubelets kubepods kubernetes kvm label labelled labels lack large larger last late latency later latest launch launched
launching layer layers layout lazytime lead leads lease leases least leave left length less letters level levels lib lib32 lib64
libcontainer libcrun libexec library libx32 lies lifetime like limit limited limiter limits line lines link linkat linked links
linux list listed listen listener listening listens listing lists little live lo load loaded loader loading loads local
localdomain localhost location lock locked log logged logger logging logic logical login logs long longer look looking lookup
loongarch64 loop loopback lost low lower lowercase lowerdir lsetxattr lsm lstat lvm machine macvlan made magic main maintain
major make makes making malformed man manage managed manager mandatory mandlock manifest manifests manner many map mapped
mapping mappings mask masked maskedpaths masquerade master match matched matches matching max maximum may mb mean measured
measurement media mediatype meet member memfd memory mems memswap merge merged message messages meta metacopy metadata method
metric metrics microvm mig might migrate migrated migration millicores min minimum minor minute minutes mirror mirrors
misconfigured mismatch mismatched missing mixed mkdir mkdirat mkfifo mknod mknodat mnt mntns mode modes modified modify module
monitor monitoring more most mount mounted mountfd mounting mountpoint mounts move moved moving mqueue ms msg msgmax msgmnb
msgmni mtu multi multiple multus must mutex name named names namespace namespaced namespaces nat near necessary need needed
needs negative neither nested net netfilter netlink netmask netns network networking networkready networks never new newer next
nf nfs nft nftables nic nil no noatime nobody node nodes nodev nodiratime noexec nofollow non nonce none nor normal nosuchimage
nosuid nosymfollow not notation note nothing notice notification notify notready now nowhere npu nri ns null numa number numbers
numeric nvidia nvidia0 nvidia1 nvidiactl nvme nvml o oaep object objects observed obsolete obtain obtained occur occurred occurs
oci ocicrypt of off offset oid ok old older omitted on once one ones ongoing only onto oom oomkilled open openat openat2
opencontainers opendir opened opening openpgp opens operation operations opt option optional options opts or order org original
originate orphan orphaned os other others otherwise our ours out outbound outdated output outside over overflow overlap
overlapping overlay overlayfs overlays overloaded overridden override oversized own owned owner owners ownership pack package
packed packet page pages pair pairs panic panicked parallel param parameter parameters parent parse parsed parser parsing part
partial partially partition partitions parts pass passed passwd password path paths pattern pause paused pax payload peer pem
pending per percentage perform performed perm permanent permanently permission permissions permitted persist persistent pgp
phase pick pid pidfd pidfile pids ping pinned pipe pipes pivot pkg pki place plain platform platforms please plugin plugins pod
podman pods podsandbox point pointer policies policy poll pool port portforward portmap ports position positive posixacl
possible post potential ppc64le prctl precondition preempted prefix prepare prepared preparing presence present preserve prevent
preventing previous previously primary printing priority private privilege privileged privileges probably probe problem problems
proc procedure proceed process processed processes processing procfd procfs procs produced profile prog program progress
prohibited promiscuous promote propagate propagation proper properly properties property protected proto protocol provide
provided provider providers providing proxy prune pseudo ptmx ptp ptrace pty public publish pull pulled puller pulling pulls purge
push put qemu qos quantity quay query queue queued queues quit quota quotas race ran random range ranges rapid rate rather raw rbind
rdma rdonly rdt reach reachable reached read readable reader readiness reading readlink readonly reads ready real realtime reap
reaper reaping reason reboot rebooted rec receive received receiving recent recently recipient reclaim reconcile reconnect
record recorded records recover recovered recovery recursion recursive recursively recv recvmsg redirect redirects reduce
reestablished ref refer reference referenced references refers refresh refused regex region register registered registration
registries registry regular reject rejected rekor relabel related relatime relative release released releasing reload remain
remaining remains remap remapping remote remount remounting removal remove removed removes removing rename renamed renderd128
renew reopen reopened reopening repeated repetitions replace replaced replaces replacing replica reply repo report reported
reports repositories repository request requested requesting requests require required requirement requirements requires reread
resctrl reserve reserved reserving reset resize resized resolution resolv resolve resolved resolver resolving resource resources
respond responded response responses rest restart restarted restarting restore restored restoring restrict restricted result
results resume resumed resumes resuming resync retained retried retries retrieve retrieved retrieving retry retrying return
returned returning returns reuse revision revoked riscv64 rlimit rlimits rm rmdir rmem rmid ro role roll rollback root rootfs
rootfstype rootless rotate rotated rotation round route router routes routing rp rpc rprivate rro rsa rshared rslave rtnetlink
rule rules run runbindable runc runcv running runs runsc runtime runtimeclass runtimeready runtimes rw rwm s s390x safe safely
said same sandbox sandboxed sandboxer sandboxes save saved saving saw say says sbin sbr sched schedule scheduled scheduler
schema schemata scheme scope score scratch script scripts search seccomp second secondary seconds secret secrets section secure
security see seek seeker seem seen segmentation selection self selinux sem semaphore send sending sendmsg sends sent separate
sequence serial serialize serve served server servers serves service serviceaccount services session sessions set setenv setgid
setgroups sethostname setns setresgid setresuid setrlimit sets setsid setting settings setuid setup several severity sh sha
sha256 sha512 shadow share shared shares sharing shell shim shims shm shmall shmmax shmmni short shorter should show shut
shutdown shuts shutting side sigint sigkill sign signal signaled signals signature signatures signed signer sigquit sigstore
sigterm similar simple since single size sizes skip skipped skipping skopeo slave sleep slice slow small smaller snapshot
snapshots snapshotter snapshotters snat so sock socket sockets soft somaxconn some something soon source sources space span
sparse spawn spawning spec special specific specification specified specify split spoken spool squash src sriov srv stack
stacked stage stages staging stale standard stands start started starterror starting starts startup stat state stateful states
statfs static statistics stats status stays stderr stdin stdio stdout step still stop stopcontainer stopped stopping stops
storage store stored stores storing stream streaming streams strict strictatime string stuck sub subdirectory subgid subject
subkey subnet subpath subpaths subprocess subreaper subscribe subscriber subscription subset subsystem subuid succeed succeeded
success successful successfully such sufficient suffix superblock supervise supplied support supported supports suspended svc
swap swapped swappiness switch symbolic symlink symlinkat symlinks syn sync syncfs synchronize synchronized synchronous
syncookies syntax sys syscall sysctl sysctls sysfs system systemd t table tag tags take taken takes taking tap tar target
targets task tasks tcp tcp4 tcp6 tear teardown tears tell temp template temporarily temporary terminal terminate terminated
terminating termination test text texts tgz than that thaw thawed the their them then there therefore these they thin this those thread
threaded threads threshold throttled throttling through time timed timely timeout timeouts timer times timestamp timing tls tmp
tmpcopyup tmpfs to together token tokens toml too took tool tools toomanyrequests top topology total touch tpu trace tracefs
track tracked trailer trailers transaction transfer transferred transient translate transport trap tree tried trigger triggered
true truncated trusted try trying ttrpc tty tun tuning tunnel tuntap turn tw twice two type typed types typeurl udp udp4 udp6
uid uids umask umount umount2 unable uname unauthenticated unauthorized unavailable unbindable unbound unchanged uncompressed
undefined under understood undo undoing unexpected unexpectedly unhealthy unified unimplemented uninitialized union unique unit
units unix unknown unless unlink unlinkat unlock unmanaged unmarshal unmarshaling unmarshalling unmasked unmount unmounted
unmounting unpack unpacked unpacker unpacking unpacks unprivileged unqualified unreachable unreadable unready unrecognised
unrecognized unregister unrelated unresolvable unresolved unresponsive unsafe unsatisfied unset unshare unspecific unspecified
unstable unstructured unsupported untar until untrusted unusable unused unusual unwanted unwrapped up update updated updates
updating upgrade upgrading upload upper uppercase upperdir upstream upwards uri url urls us usage use used useful user userdata
username userns users userxattr uses using usr utf util uts uuid v1 v1alpha2 v2 valid validate validated validating validation
validator value values var variable variables variant vendor verification verified verifier verifiers verify verifying versa
version versions very veth vfio via vice victim view violated violation virtiofs virtual visible vlan vm vmm vnd volatile volume
volumes vouch vrf vsock wait waited waiter waiting waitpid waits want wanted wants warm warning warnings warns was wasn watch
watchdog watcher watching way ways we weave web weight well went were what when where whereabouts whether which while whiteout who whole
whose why wide wildcard will window windows wire with within without wmem word work workdir worker workers working workload
would wouldn wrap wrapped wrapper writable write writer writes writing written wrong wrongly wrote www x509 x86 xattr xattrs xfs
xino xpu xtables xz yaml yes yet you youki your zero zfs zombie zone zstd
";

/// Words in errors of the kubelet (1.36), containerd, runc, the CNI plugins and the dynamic loader, which `tests/by-hand/error-words.py`
/// prints from their sources, in alphabetical order.
const WORDS_OF_SOURCES: &str = "
abi ability accessor according accordingly accounting accounts accumulated achieve acknowledge act actions activating activation
actually actuated adapter additionally adjust admin admission advanced advisor aff affinity agnostic aka align aligned
allocatable allocations allowlisted along alphabetic alternative alternatively ambient among anchors anonymous anything apiqps
apiserver app appear appears appended appending applications applier archs aren argc args argv array asm assembling assertion
assignment assignments associating assume assuming async atomically attachable attacher attr attrs auditors authorize
automatically aux auxiliary auxv avoid background backing backup backwards barrier based becoming belonging beta bitmask blk
blkid boltdb bootstrap bounding breakout breaks btime buckets budget buf bufpipe bugs bundles burst busctl bytemsg cadvisor
calculate calculated callback canonical canonicalize caps cast cat category causes cfs chained chains challenge chan chap
checker checkout checkpointing chosen cifs cim circular claim classic clktck closer closers closes cmsg cnt collector
combination combined come comm comma commonly communicating compatibility compiled compiling completion compliant components
compressor compute concurrent configmap conn connector cons consider constant constraints construct consumed consuming
containerfs containerized containing continuing controlling conversion converting converts copyable correctly corresponding
corresponds counter coverage covert cpumanager crc crc32 crypto csi ctrl ctx customizations customized cycle cycles dacl
dadfailed dcachebsize deactivate deal debian debugging decompression dedicated dedup deduplication defer delegation deletable
deleter deletes delim demand depending deprecation described despite detacher detaching detachment determined determining
dhcpack dhcprelease diagnostics dies directly dirname disallowing disassemble disassembling discarding disconnecting discover
discoverydb display displayed displays distances dll dlmopen dlopen dockercfg doing domainname downgrade downgrading downward
dra drive drivers dropping dtv dynamically earlier easily ecdsa echild edit editing editor effect egid elf elfw enabling enc
enclosed endian ending enforce enforcements enosys ensures entity envelope envvars epoll epoller equality equals erange errored
errorlint ethtool euid eval even evented eventfd evicting example excess exe execfd execfn execing executes executor execve
existence expander expanding expandvolume expansion expects expensive expiration explanation explicitly exporter exporting ext
extend facility factory falling families family faulty feasible feat few fibre fifos fileinfo filenames filepath fill filtered
fini fitness fix flex flexvolume flight fmt forcing formatter forwards foundation fourth fpucw fqdn freed fsck fsinfo fsnotify
fsstats fulfil fun func further futex gate gateways gather gave generic gets git github glibc glob global glro golang gvk halted
happen hardcap hardcapping hardware healthz hello help helps historically hklm hns homedir hostpath hostutil housekeeping html
hugtlb hwaddr hwcap hwcaps hybrid icachebsize ident identifies identify idle idx iface ifb ifunc ignoring imagefs imap
implementation important inc include included includes including inclusive inconsistency independent independently indicating
infer inform informer ingress inherit inheritable inherited inherits inherritable inhibit inhibitor initially initiative insert
inspecting instantiate instructions int integers integrates integration intelrdt intent intents interchangeable interpreter
interval invoking iota ipmasq iptable iqn irregular isa issued issues issuing iterate iteration jail jailing jmap judgement
jumps keeping kern kernelpath kernelversion keypair killall kubeconfig kubereserved labeled lacks lastp laversion lazily lazy
lchown leading leaf leaked leaving leftover legacy lenient libpathrs libraries libseccomp lifecycle likely linker linking
linkval linter lister listp loadable loadavg locally locate located locations locks loggers logind logrus lookups lose losetup
lots lsattr lun mac machines mainpid makefile malformatted manipulating manually mapper maps mark marking marshal marshaling
marshall marshalling masq maybe mba means medium mem members memorymanager met micro mid migratable migrating minsigstksz miss
mkfs models modid modifies modules mostly mounter mountid mountpoints mountvolume much multicast multipath nameserver
nameservers nano native naudit netconf netwok newly niov niovmax nlink nlist nloaded nmaps nodelete nodename nolint nonzero noop
normalize normalized normalizing noswap notelf notifications notified npipe npreloads nsenter nsexec nsid nsmask nul num
numerical oauth obsoleted obtaining offsets often omitempty omitting operating operator operators ordinary outputs overlaps
overrided overwrite packaged packets padding pager pagesize pagesz parallelism params parents parsable parses passing past patch
patching pathname pathrs patterns pci pdeath pelem percent perf performance performs period personality phdr phent phentsize
phnum physical picked pigz pinns pkcs pleg plt podresources podsanbox points populate populated populator portal portals
positional possibly poststart pprof pre preempt preemption preemptive preferred preinit preload preloaded prematurely prepend
preserved preshutdown pressure prettyfier prev print prints prior priorities privs prober proceeding processor processors
product production profiler programs project projected projection prometheus promisc prompt prot protection protections provides
provision provisionable provisioning proxying pruning pseudoterminal ptr publishing pushing pvc qdisc qps queries quiet quite
quote quotes races ramdisk ranking readd really realm reassign rebuild receives recognise reconstruct reconstruction recursing
recvtty recyclable recycle recycler redirected redirecting referencing referrers referring refetch refs refusing regarded regexp
registering rejecting rel rela relating relationship relink relist reloc relocation relocations relr remotepath remounted
renaming reparented reportedly represent represents reservation resetting resizing resp responsive restoration restores ret
reused reverification revise revive right rights rootful rootgid rootpath rootuid row rpath runcfeatures runner runonce runpath
rus safety sanbox sane sanity satisfied satisfy saves scan scheduling scopes scores scsi seal sealable sealing searched
searching sec sed segment segments select selector sendfile sendtargets sense separated separator serving settle setxattr sgid
shelling shift shorten shows sid sigchan sigchld sighup signing sigstr sigurg sigwinch simultaneously singleflight sizeof
slaving slices slot slotinfo smb sockpath software sort spaces spawned specconv specifier specifies specifying specs spoof ssb
stable standalone starter staticcheck stating statisticsdisplay statuses statx sticky strategy strconv streamid strictly strings
struct structures stub subbucket subcpu subdir subdirectories subdomain subfields subgids submount subnets subordinate
subprocesses subresource substitution subsystems subuids sudo suid suitable sum summary supervisor supervisors supporting sure
suspends switching sym symbol synced synchronisation synchronization synchronously syncing syscalls sysinfo systemreserved
tables tabwriter tail taint taints tearing telemetry tells tentative term though three thresholds throttle ticker tidy
timestamps tiocgptpeer title titles tmap tmpdir tmpfile todo toleration topic topologymanager traces tracing tracking trailing
transition transmit traverse tries trimming truncate trunk trust tunables turned ubr ubuntu ucachebsize ucounts uint uintptr
ummounting unattached unaware uncertain unclosed uncommittable underlying understand unexcepted unformatted unhandled unicast
uninstalling unixgram unlimited unlinked unlinking unmap unmapped unmapper unmarshalany unmarshall unmounter unpigz unprepare
unreasonably unreferenced unregistered unsatisfiable unstage untested upgraded upon upsert uptime usable usecs userfaultfd
usually utc utils utime utimes val vars verb verbose verdef verneed versymidx vfs violates vol vsocket waitid walk walking weak
weights whence whenever worry wwn xdg zeros
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_sorted_and_in_lower_case() {
        for list in [WORDS, WORDS_OF_SOURCES] {
            let words: Vec<_> = list.split_ascii_whitespace().collect();
            assert!(words.is_sorted_by(|a, b| a < b));
            for word in words {
                let mut bytes = word.bytes();
                let is_plain = bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
                assert!(is_plain && is_known(word), "{word}");
            }
        }
    }
}
