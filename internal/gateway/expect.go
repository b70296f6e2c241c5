package gateway

import (
	"sync"
	"sync/atomic"
)

// expectation is an agent's question whether its body is wanted ("Expect: 100-continue"),
// while the service has it. The transport begins to read the body when the service has said
// 100, when it has said nothing for a second, which services do that do not know the
// question (RFC 9110, section 10.1.1), and when it has answered and keeps its connection.
//
// Here that last is no reason where it is a refusal: to read the body is to have net/http
// tell the agent to send it, and nobody wants it. It stays unread until the refusal has been
// passed on; the connection to the service is then closed, as it is behind any request that
// was not sent to its end. Behind a 2xx it is sent, as such an answer may be made of it.
// The agent is told by the gateway: net/http would from the goroutine that reads, while
// another 1xx is written (it looks after its own 100 alone).
//
// Over HTTP/2 net/http keeps an agent's question to itself, and answers it when the body is
// first read: it is put to the gateway, and not to the service.
type expectation struct {
	begun  atomic.Bool // the service says something that is not known yet
	unsaid func()      // has the body be wanted, as the service says nothing

	said             sync.Once // the first of these:
	wanted, unwanted chan struct{}
	over             chan struct{} // nobody waits for the body any more
}

func newExpectation() *expectation {
	return &expectation{wanted: make(chan struct{}), unwanted: make(chan struct{}), over: make(chan struct{})}
}

// want is that the body is wanted; the agent is told so before any of it is read.
func (e *expectation) want(tell func()) { e.said.Do(func() { tell(); close(e.wanted) }) }

// refuse is that it is not.
func (e *expectation) refuse() { e.said.Do(func() { close(e.unwanted) }) }

// await is called when the transport would read the body. It reports whether that is to be
// read, once this is known.
func (e *expectation) await() bool {
	if !e.begun.Load() {
		e.unsaid()
	}
	select {
	case <-e.wanted:
		return true
	case <-e.unwanted: // a failure now would close the connection that the answer comes by (golang/go#40747)
		<-e.over
	case <-e.over:
	}
	return false
}
