// Reserve with the Go client of openapi-generator: URL, start in Unix seconds.
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
	settings := hydra.NewConfiguration()
	settings.Servers = hydra.ServerConfigurations{{URL: os.Args[1]}}
	api, ctx := hydra.NewAPIClient(settings).ReservationsAPI, context.Background()
	body := hydra.NewReservationBody("r1", "r2", 1)
	body.SetStartUnixS(start)
	body.SetDurationS(60)
	made, _, err := api.CreateReservation(ctx).ReservationBody(*body).Execute()
	if err != nil {
		log.Fatal(err)
	}
	read, _, err := api.GetReservation(ctx, made.Id).Execute()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s %.6f\n", made.State, read.StartUnixS)
}
