package pgtest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Halt stops the server and all of its processes where they are: it neither answers nor
// lets anybody go. Resume has them go on.
func (s *Server) Halt(t testing.TB) {
	t.Helper()
	found, err := s.signal(syscall.SIGSTOP)
	if err != nil {
		t.Fatal(err)
	}
	if !found {
		t.Skip("no /proc, by which the processes of a server are found")
	}
}

// Resume ends a Halt.
func (s *Server) Resume(t testing.TB) {
	t.Helper()
	if _, err := s.signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// signal reaches the first process and, where they can be found, its children. They are in
// groups of their own, and with the first one halted there are no new ones.
func (s *Server) signal(what syscall.Signal) (found bool, err error) {
	parent := s.cmd.Process.Pid
	if err := syscall.Kill(parent, what); err != nil {
		return false, err
	}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // ended meanwhile
		}
		// pid (name) state ppid ...
		after := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && len(after) > 1 && after[1] == strconv.Itoa(parent) {
			_ = syscall.Kill(pid, what)
		}
	}
	return len(stats) > 0, nil
}
