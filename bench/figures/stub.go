package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"
)

// stub is the upstream. Its answers are made ahead:
//
//	/small   1 KiB of JSON        /large  64 KiB of JSON    /empty  204
//	/later   the same after 20 ms
//	/events  a short stream, event by event
//	/stream  one event, and then a comment every 15 s until the caller goes
//
// A line on its standard input asks for the streams that stand open and for the
// times at which others were seen to end since the last such question.
func stub() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	s := &stubState{}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(c)
		}
	}()
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if err := json.NewEncoder(os.Stdout).Encode(s.report()); err != nil {
			return err
		}
	}
	return in.Err()
}

type stubState struct {
	mu    sync.Mutex
	open  int
	ended []time.Time
}

type stubReport struct {
	Open  int
	Ended []time.Time
}

func (s *stubState) report() stubReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := stubReport{s.open, s.ended}
	s.ended = nil
	return r
}

var answers = map[string]string{
	"/small": whole(1 << 10),
	"/large": whole(64 << 10),
	"/later": whole(1 << 10),
	"/empty": "HTTP/1.1 204 No Content\r\n\r\n",
}

// whole is an answer with so many bytes of JSON.
func whole(n int) string {
	const around = `{"result":""}`
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", n) +
		around[:len(around)-2] + strings.Repeat("x", n-len(around)) + `"}`
}

const (
	streamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	event      = "10\r\ndata: {\"n\": 1}\n\n\r\n"
	events     = 5 // of /events
	streamEnd  = "0\r\n\r\n"
)

func (s *stubState) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	r := bufio.NewReader(c)
	for {
		m, err := readHead(r)
		if err != nil {
			return
		}
		if _, err := discardBody(r, m); err != nil {
			return
		}
		switch path := m.path(); path {
		case "/stream":
			s.hold(c, r)
			return
		case "/events":
			text := streamHead
			for range events {
				if _, err := io.WriteString(c, text); err != nil {
					return
				}
				text = event
			}
			if _, err := io.WriteString(c, event+streamEnd); err != nil {
				return
			}
		default:
			if path == "/later" {
				time.Sleep(20 * time.Millisecond)
			}
			if _, err := io.WriteString(c, answers[path]); err != nil || answers[path] == "" {
				return
			}
		}
	}
}

// comments is how often a stream of nothing says that it is there.
const (
	comments = 15 * time.Second
	comment  = "3\r\n:\n\n\r\n"
)

// hold keeps a stream of nothing but comments until the caller has gone.
func (s *stubState) hold(c net.Conn, r io.Reader) {
	if _, err := io.WriteString(c, streamHead+event); err != nil {
		return
	}
	s.mu.Lock()
	s.open++
	s.mu.Unlock()
	err := os.ErrDeadlineExceeded
	for errors.Is(err, os.ErrDeadlineExceeded) {
		if err = c.SetReadDeadline(time.Now().Add(comments)); err == nil {
			_, err = r.Read(make([]byte, 1))
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			_, _ = io.WriteString(c, comment)
		}
	}
	s.mu.Lock()
	s.open--
	s.ended = append(s.ended, time.Now())
	s.mu.Unlock()
}
