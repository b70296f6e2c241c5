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
func (s *Server) Halt(t testing.TB) { s.signal(t, syscall.SIGSTOP) }

// Resume ends a Halt.
func (s *Server) Resume(t testing.TB) { s.signal(t, syscall.SIGCONT) }

// signal reaches the first process and its children. They are in groups of their own, and
// with the first one halted there are no new ones.
func (s *Server) signal(t testing.TB, what syscall.Signal) {
	t.Helper()
	parent := s.cmd.Process.Pid
	if err := syscall.Kill(parent, what); err != nil {
		t.Fatal(err)
	}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	if len(stats) == 0 {
		t.Skip("no /proc, by which the processes of a server are found")
	}
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
}
