import java.util.Locale;
import org.openapitools.client.ApiClient;
import org.openapitools.client.api.ReservationsApi;
import org.openapitools.client.model.Reservation;
import org.openapitools.client.model.ReservationBody;

/** Reserve with the Java client of openapi-generator: URL, start in Unix seconds. */
public class Reserve {
  public static void main(String[] arguments) throws Exception {
    ReservationsApi api = new ReservationsApi(new ApiClient().setBasePath(arguments[0]));
    ReservationBody body = new ReservationBody().src("r1").dst("r2").bandwidthMbps(1.0);
    body.startUnixS(Double.valueOf(arguments[1])).durationS(60.0);
    Reservation made = api.createReservation(body, null, null);
    Reservation read = api.getReservation(made.getId(), null, null, null);
    System.out.printf(Locale.ROOT, "%s %.6f%n", made.getState().getValue(), read.getStartUnixS());
    System.exit(0);
  }
}
