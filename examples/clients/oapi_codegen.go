// Reserve with the client of oapi-codegen: URL, start in Unix seconds.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"

	hydra "hydra/generated"
)

func main() {
	start, err := strconv.ParseFloat(os.Args[2], 64)
	if err != nil {
		log.Fatal(err)
	}
	client, err := hydra.NewClientWithResponses(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	ctx, duration := context.Background(), 60.0
	body := hydra.ReservationBody{
		Src: "r1", Dst: "r2", BandwidthMbps: 1, StartUnixS: &start, DurationS: &duration,
	}
	made, err := client.CreateReservationWithResponse(ctx, nil, body)
	if err != nil || made.JSON201 == nil {
		log.Fatal(err, made)
	}
	read, err := client.GetReservationWithResponse(ctx, made.JSON201.Id, nil)
	if err != nil || read.JSON200 == nil {
		log.Fatal(err, read)
	}
	fmt.Printf("%s %.6f\n", made.JSON201.State, read.JSON200.StartUnixS)
}
