package redisstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// said is what Redis replied to one job of many, as it would have to that job alone.
type said string

func (s said) Error() string { return string(s) }

// RedisError has it be sorted as go-redis' own are.
func (said) RedisError() {}

var errReply = errors.New("the reply is not one of the program")

// command is what has the jobs run at once. A deadline is in microseconds by the server's
// clock, 0 for none. See ratelimit's queries/run.lua.
func command(sha1 string, jobs []*job, deadline func(*job) int64) []any {
	keys, numbersLength, texts := 0, 0, 0
	for _, j := range jobs {
		keys, numbersLength, texts = keys+len(j.Keys), numbersLength+5+len(j.Numbers), texts+len(j.Texts)
	}
	args := make([]any, 4+keys, 4+keys+texts)
	args[0], args[1], args[2] = "evalsha", sha1, keys
	numbers := make([]byte, 0, 8*numbersLength)
	at := 3
	for _, j := range jobs {
		for i := range j.Keys {
			args[at] = &j.Keys[i]
			at++
		}
		for i := range j.Texts {
			args = append(args, &j.Texts[i])
		}
		for _, n := range [5]int64{j.Script.Number, int64(len(j.Keys)), int64(len(j.Numbers)), int64(len(j.Texts)), deadline(j)} {
			numbers = appendNumber(numbers, n)
		}
		for _, n := range j.Numbers {
			numbers = appendNumber(numbers, n)
		}
	}
	args[at] = numbers
	return args
}

// read hands each of the jobs its part of the reply to a command. What is wrong with all
// of it is every one's error.
func read(jobs []*job, reply []any, err error) {
	var numbers string
	if err == nil {
		ok := len(reply) > 0
		if ok {
			numbers, ok = reply[0].(string)
		}
		if !ok {
			err = errReply
		}
	}
	failed := 0
	all := make([]int64, 0, len(numbers)/8) // of which each job has its part
	for _, j := range jobs {
		j.values, j.err = nil, err
		if err != nil {
			continue
		}
		n, rest, ok := next(numbers)
		switch {
		case ok && n == -1 && failed+1 < len(reply):
			failed++
			numbers = rest
			j.err = said(fmt.Sprint(reply[failed]))
		case ok && n > 0 && int64(len(rest)) >= 8*n:
			from := len(all)
			for range n {
				var value int64
				value, rest, _ = next(rest)
				all = append(all, value)
			}
			j.values, numbers = all[from:len(all):len(all)], rest
		default:
			err = errReply
			j.err = err
		}
	}
}

// appendNumber adds an integer below 2^53 as Lua has it: as a double.
func appendNumber(to []byte, n int64) []byte {
	return binary.LittleEndian.AppendUint64(to, math.Float64bits(float64(n)))
}

// next is the first integer of those that follow each other in s.
func next(s string) (n int64, rest string, ok bool) {
	if len(s) < 8 {
		return 0, s, false
	}
	bits := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 | uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56 // one load
	return int64(math.Float64frombits(bits)), s[8:], true
}
