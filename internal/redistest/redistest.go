// Package redistest starts real Redis servers for tests: those of Debian's package or
// of Valkey's, on a free port, with nothing on disk.
package redistest

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Server is one running server.
type Server struct {
	Addr string
	args []string
	bin  string
	cmd  *exec.Cmd
	t    testing.TB
}

// Start starts a server that ends with the test, or skips the test where none is
// installed, or where SERVICES=off says that none is to be. args are options as on its
// command line.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s := &Server{t: t, bin: binary()}
	if s.bin == "" || os.Getenv("SERVICES") == "off" {
		t.Skip("no real Redis: neither redis-server nor valkey-server is on the path, or SERVICES=off")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Addr = l.Addr().String()
	_ = l.Close()
	_, port, _ := net.SplitHostPort(s.Addr)
	s.args = append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir()}, args...)
	s.Again()
	t.Cleanup(s.Stop)
	return s
}

func binary() string {
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// Again starts it after a Stop, at the same address and empty.
func (s *Server) Again() {
	s.t.Helper()
	s.cmd = exec.Command(s.bin, s.args...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if s.ping() {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatal("redis-server does not answer")
		}
	}
}

// Stop kills it.
func (s *Server) Stop() {
	if s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Signal(syscall.SIGCONT)
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
}

// Pause has it hang, with its connections open, until Resume.
func (s *Server) Pause() { _ = s.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (s *Server) Resume() { _ = s.cmd.Process.Signal(syscall.SIGCONT) }

// URL is where it is.
func (s *Server) URL() string { return "redis://" + s.Addr }

// Do runs one command, and returns the reply as it stands on the wire.
func (s *Server) Do(args ...string) string {
	s.t.Helper()
	reply, err := s.do(args...)
	if err != nil {
		s.t.Fatalf("%s: %v", args[0], err)
	}
	return reply
}

func (s *Server) ping() bool {
	reply, err := s.do("PING")
	return err == nil && (strings.HasPrefix(reply, "+PONG") || strings.HasPrefix(reply, "-NOAUTH"))
}

func (s *Server) do(args ...string) (string, error) {
	c, err := net.DialTimeout("tcp", s.Addr, time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return "", err
	}
	text := "*" + strconv.Itoa(len(args)) + "\r\n"
	for _, a := range args {
		text += "$" + strconv.Itoa(len(a)) + "\r\n" + a + "\r\n"
	}
	if _, err := c.Write([]byte(text)); err != nil {
		return "", err
	}
	reply := make([]byte, 1<<16)
	n, err := c.Read(reply)
	if n == 0 {
		return "", errors.Join(errors.New("no reply"), err)
	}
	return strings.TrimSpace(string(reply[:n])), nil
}
