// Judges histories of a register with porcupine: one of them a line on standard input, as a list of
// operations; one line of output for each, "true" where it is linearizable. It stands beside the
// laboratory's own checker, which has to say the same.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"

	"github.com/anishathalye/porcupine"
)

type operation struct {
	Client int    `json:"client"`
	Name   string `json:"name"`
	Value  []int  `json:"value"` // of a write one number, of a compare-and-set two
	Known  bool   `json:"known"`
	Result int    `json:"result"` // of a read its value, of a compare-and-set 1 where it has set
	Began  int64  `json:"began"`
	Ended  int64  `json:"ended"`
}

func step(state, input, output interface{}) (bool, interface{}) {
	now, asked, said := state.(int), input.(operation), output.(operation)
	switch asked.Name {
	case "read":
		return !said.Known || said.Result == now, now
	case "write":
		return true, asked.Value[0]
	default:
		isOld := now == asked.Value[0]
		after := now
		if isOld {
			after = asked.Value[1]
		}
		return !said.Known || (said.Result == 1) == isOld, after
	}
}

func main() {
	model := porcupine.Model{Init: func() interface{} { return 0 }, Step: step}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var history []operation
		if err := json.Unmarshal(lines.Bytes(), &history); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		var operations []porcupine.Operation
		for _, each := range history {
			ended := each.Ended
			if !each.Known { // it may come at any time, also behind all others
				ended = math.MaxInt64
			}
			operations = append(operations, porcupine.Operation{
				ClientId: each.Client, Input: each, Output: each, Call: each.Began, Return: ended,
			})
		}
		fmt.Println(porcupine.CheckOperations(model, operations))
	}
}
