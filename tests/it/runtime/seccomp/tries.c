/* Makes system calls that the default seccomp profile allows or blocks, and prints the result of
 * each: its name and `ok`, or the errno. The arguments make a permitted call harmless. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static void say(const char *name, long result, int error)
{
	if (result < 0)
		printf("%s %d\n", name, error);
	else
		printf("%s ok\n", name);
	fflush(stdout);
}

static void call(const char *name, long number, long a, long b, long c, long d, long e)
{
	errno = 0;
	long result = syscall(number, a, b, c, d, e);
	say(name, result, errno);
}

#ifdef __x86_64__
/* A call of the 32-bit ABI, which 64-bit code can use too. */
static void call32(const char *name, long number, long a, long b, long c)
{
	long result;
	__asm__ volatile("int $0x80" : "=a"(result)
			 : "a"(number), "b"(a), "c"(b), "d"(c)
			 : "memory", "r8", "r9", "r10", "r11");
	result = (int)result;
	say(name, result, (int)-result);
}
#endif

int main(void)
{
	const long nothing = -1, high = 1L << 32;
	/* Families, type SOCK_SEQPACKET (5) or SOCK_STREAM (1). */
	call("alg", SYS_socket, 38, 5, 0, 0, 0);
	call("alg-high", SYS_socket, high | 38, 5, 0, 0, 0);
	call("vsock", SYS_socket, 40, 1, 0, 0, 0);
	call("vsock-high", SYS_socket, high | 40, 1, 0, 0, 0);
	call("unix", SYS_socket, 1, 1, 0, 0, 0);
	call("inet", SYS_socket, 2, 1, 0, 0, 0);
	call("netlink", SYS_socket, 16, 3, 0, 0, 0);
	/* User namespaces, by each system call. */
	long child = syscall(SYS_clone, 0x10000000 | SIGCHLD, 0, 0, 0, 0);
	if (child == 0)
		_exit(0);
	say("clone-user", child, errno);
	call("clone3", SYS_clone3, 0, 0, 0, 0, 0);
	call("setns", SYS_setns, nothing, 0, 0, 0, 0);
	call("keyctl", SYS_keyctl, 0, -3, 0, 0, 0);
	call("add_key", SYS_add_key, 0, 0, 0, 0, 0);
	call("request_key", SYS_request_key, 0, 0, 0, 0, 0);
	call("bpf", SYS_bpf, 0, 0, 0, 0, 0);
	call("perf_event_open", SYS_perf_event_open, 0, 0, 0, nothing, 0);
	call("userfaultfd", SYS_userfaultfd, 1, 0, 0, 0, 0);
	call("io_uring_setup", 425, 0, 0, 0, 0, 0);
	call("io_uring_enter", 426, nothing, 0, 0, 0, 0);
	call("io_uring_register", 427, nothing, 0, 0, 0, 0);
	call("mount", SYS_mount, 0, 0, 0, 0, 0);
	call("open_tree", 428, nothing, 0, 0, 0, 0);
	call("move_mount", 429, nothing, 0, nothing, 0, 0);
	call("fsopen", 430, 0, 0, 0, 0, 0);
	call("mount_setattr", 442, nothing, 0, 0, 0, 0);
	call("open_tree_attr", 467, nothing, 0, 0, 0, 0);
	call("pivot_root", SYS_pivot_root, 0, 0, 0, 0, 0);
	call("open_by_handle_at", SYS_open_by_handle_at, nothing, 0, 0, 0, 0);
	call("kexec_load", SYS_kexec_load, 0, 0, 0, nothing, 0);
	call("init_module", SYS_init_module, 0, 0, 0, 0, 0);
	call("reboot", SYS_reboot, 0, 0, 0, 0, 0);
	call("swapon", SYS_swapon, 0, 0, 0, 0, 0);
	call("acct", SYS_acct, 1, 0, 0, 0, 0);
	call("syslog", SYS_syslog, 3, 0, 0, 0, 0);
	call("clock_settime", SYS_clock_settime, 0, 0, 0, 0, 0);
	call("quotactl", SYS_quotactl, nothing, 0, 0, 0, 0);
	call("personality-uname26", SYS_personality, 0x0020000, 0, 0, 0, 0);
	call("personality-aslr", SYS_personality, 0x0040000, 0, 0, 0, 0);
#ifdef __x86_64__
	call("iopl", SYS_iopl, 0, 0, 0, 0, 0);
	/* socketcall(SYS_SOCKET): the family is in memory, where filters cannot see it. */
	int32_t *arguments = mmap(0, 4096, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	arguments[0] = 38;
	arguments[1] = 5;
	arguments[2] = 0;
	call32("32-socketcall-alg", 102, 1, (long)arguments, 0);
	arguments[0] = 40;
	arguments[1] = 1;
	call32("32-socketcall-vsock", 102, 1, (long)arguments, 0);
	call32("32-alg", 359, 38, 5, 0);
	call32("32-vsock", 359, 40, 1, 0);
	call32("32-unix", 359, 1, 1, 0);
	call32("32-unshare-user", 310, 0x10000000, 0, 0);
	call32("32-bpf", 357, 0, 0, 0);
	call32("32-keyctl", 288, 0, -3, 0);
	/* The same with the x32 ABI, if the kernel supports it. */
	call("x32-alg", 0x40000000 | SYS_socket, 38, 5, 0, 0, 0);
#endif
	/* Last, because a permitted call changes the namespace. */
	call("unshare-user", SYS_unshare, 0x10000000, 0, 0, 0, 0);
	return 0;
}
