package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// process is a child: the gateway, the peer, the stub or a load generator.
type process struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	Address string // where it listens
	Admin   string // the gateway's operators' address
}

// started are all of them: none may outlive this program.
var started []*process

func (p *process) start() error {
	err := p.cmd.Start()
	if err == nil {
		started = append(started, p)
	}
	return err
}

// stop ends the process; once is enough, and more does no harm.
func (p *process) stop() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func stopAll() {
	for _, p := range started {
		p.stop()
	}
}

func (p *process) cpu() time.Duration {
	d, err := cpuOf(p.cmd.Process.Pid)
	fail(err)
	return d
}

func (p *process) rss() int64 {
	n, err := rssOf(p.cmd.Process.Pid)
	fail(err)
	return n
}

// self starts this program in one of its roles.
func self(args ...string) (*process, error) {
	me, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(me, args...)}
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	return p, p.start()
}

// listening starts a role that says its address first.
func listening(args ...string) (*process, error) {
	p, err := self(args...)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fscanln(p.out, &p.Address); err != nil {
		p.stop()
		return nil, fmt.Errorf("%v did not start: %w", args, err)
	}
	return p, nil
}

// gateway starts the product on a data folder of its own and waits until it
// says that it serves.
func gateway(binary, registry, data string, flags ...string) (*process, error) {
	args := append([]string{"serve", "--registry", registry, "--data", data, "--log-format", "json",
		"--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, flags...)
	p := &process{cmd: exec.Command(binary, args...)}
	p.cmd.Dir = filepath.Dir(data)
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := p.start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(stderr)
	lines.Buffer(nil, 1<<20)
	var said []string
	for lines.Scan() {
		var line struct{ Msg, Agents, Admin string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "serving" {
			p.Address, p.Admin = line.Agents, line.Admin
			go complaints(lines)
			return p, nil
		}
		said = append(said, lines.Text())
	}
	p.stop()
	return nil, fmt.Errorf("the gateway did not start: %s", strings.Join(said, "\n"))
}

// complaints passes on what a gateway says that is more than news.
func complaints(lines *bufio.Scanner) {
	for lines.Scan() {
		if !strings.Contains(lines.Text(), `"level":"INFO"`) {
			fmt.Fprintln(os.Stderr, "gateway:", lines.Text())
		}
	}
}

// under runs the job against p and returns its result and the processor time
// that p took for it.
func (p *process) under(j job) (result, time.Duration, error) {
	j.Address = p.Address
	l, err := startLoad(j)
	if err != nil {
		return result{}, 0, err
	}
	defer l.stop()
	from := p.cpu()
	r, err := l.result()
	took := p.cpu() - from
	if err == nil && r.Wrong > 0 {
		err = fmt.Errorf("%d of %d answers were not as they should be, the first: %s", r.Wrong, r.Answers, r.First)
	}
	return r, took, err
}

func startLoad(j job) (*process, error) {
	l, err := self("load")
	if err != nil {
		return nil, err
	}
	if err := json.NewEncoder(l.in).Encode(j); err != nil {
		l.stop()
		return nil, err
	}
	return l, nil
}

func (p *process) result() (r result, err error) {
	return r, json.NewDecoder(p.out).Decode(&r)
}

// streams asks a stub for its streams.
func (p *process) streams() (r stubReport, err error) {
	if _, err := fmt.Fprintln(p.in); err != nil {
		return r, err
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(line, &r)
}
