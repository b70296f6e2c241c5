package gateway

import "runtime/debug"

// guarded runs one direction of a connection that was taken over. A panic in it is logged and
// told to over: it is for the goroutine that serves the call to go on with, as elsewhere it
// would end the process, and leave the other direction with nobody who ends it.
func (g *Gateway) guarded(what string, direction func(), over func(fault any)) {
	defer func() {
		if fault := recover(); fault != nil {
			g.log.Error("a direction of "+what+" panicked", "panic", fault, "stack", string(debug.Stack()))
			over(fault)
		}
	}()
	direction()
}
