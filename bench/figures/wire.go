package main

import (
	"bufio"
	"bytes"
	"errors"
	"strconv"
)

// message is the head of a request or an answer, as far as the stub and the
// load generator care. They speak HTTP/1.1 by hand, since on a machine of few
// cores what net/http costs on both sides would leave little for what is
// measured.
type message struct {
	start   string // the first line
	length  int64  // of the body; 0 where none is declared
	chunked bool
}

var errHead = errors.New("not the head of an HTTP/1.1 message")

// readHead reads up to and including the empty line.
func readHead(r *bufio.Reader) (m message, err error) {
	for n := 0; ; n++ {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return m, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if n == 0 {
			m.start = string(line)
			continue
		}
		if len(line) == 0 {
			return m, nil
		}
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			return m, errHead
		}
		switch value = bytes.TrimSpace(value); {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if m.length, err = strconv.ParseInt(string(value), 10, 64); err != nil {
				return m, err
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			m.chunked = true
		}
	}
}

// discardBody reads the body of m to its end and returns its length. An error
// means that the body was cut.
func discardBody(r *bufio.Reader, m message) (int64, error) {
	if !m.chunked {
		n, err := r.Discard(int(m.length))
		return int64(n), err
	}
	var total int64
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return total, err
		}
		size, err := strconv.ParseInt(string(bytes.TrimRight(line, "\r\n")), 16, 32)
		if err != nil {
			return total, err
		}
		if size == 0 {
			return total, discardTrailer(r)
		}
		n, err := r.Discard(int(size))
		total += int64(n)
		if err == nil {
			_, err = r.Discard(2)
		}
		if err != nil {
			return total, err
		}
	}
}

func discardTrailer(r *bufio.Reader) error {
	for {
		line, err := r.ReadSlice('\n')
		if err != nil || len(bytes.TrimRight(line, "\r\n")) == 0 {
			return err
		}
	}
}

// status is the status of an answer, 0 where there is none.
func (m message) status() int {
	if len(m.start) < 12 {
		return 0
	}
	n, _ := strconv.Atoi(m.start[9:12])
	return n
}

// path is the path of a request without its query.
func (m message) path() string {
	_, rest, _ := bytes.Cut([]byte(m.start), []byte(" "))
	if i := bytes.IndexAny(rest, " ?"); i >= 0 {
		rest = rest[:i]
	}
	return string(rest)
}
